-- Writes the short reply of one limit.
-- Expects i, the limit's number; held, how many units its window holds; left, the time until the oldest leaves (us);
-- window (us); sign, -1 if the limit denies. Provides reply[r + i].
reply[r + i] = sign * (held * (window + 1) + left + 1)
