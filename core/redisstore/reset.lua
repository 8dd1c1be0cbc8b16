-- Forgets a log. KEYS[1] the log.
redis.call('UNLINK', KEYS[1])
return {1}
