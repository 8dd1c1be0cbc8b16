-- Forgets a log. KEYS[1] the log. Reply: how many there were.
return redis.call('UNLINK', KEYS[1])
