-- Removes a log. KEYS[1] the log. Reply: 1.
redis.call('UNLINK', KEYS[1])
return {1}
