-- The log that log.lua decides about, and what is asked of it. These are locals that its functions have in common: a
-- table of them would take as many instructions as a command or two. The functions are made within another one, which
-- has all of these locals already: each of them would search for its own ones otherwise.
-- Expects now, stamp.

-- What plan.lua reads: the mode without its "v"; whether that is "u"; how many limits there are, and how many of them
-- decide; their quotas and windows; keep (us); its TTL; whether windows vary; the smallest quota that decides; how many
-- units the log keeps where it is trimmed.
local mode, upTo, last, deciding, quotas, windows, keep, keepTtl, varied, smallest, largest
-- The takes, their cost, and 8 bytes of ids for each; how many units of these takes were there before, whether these
-- are of a denial, and their score.
local key, takes, cost, ids, own, denied, at = nil, nil, nil, nil, 0, false, false
-- What the log has: entries; how many units more, which are weights; the stamp of the oldest entry, false if there is
-- none, nil if it is not known any more; what marked.lua knows: the mark, the window in it or in the summary, whether
-- this is missing or too short; the summary; whether units of the takes or of the log have weights.
local entries, extra, oldest, mark, kept, extends, summary, weighs = 0, 0
-- How many times the stamps scores are; the score of an entry that is recorded now, as text; how long entries stay
-- (us); the TTL (ms).
local scale, logStamp, logKeep, logTtl = 1, stamp, nil, nil
-- Whether an entry from the future was seen; how many takes are admitted; what is replied about each limit.
local future, admitted, used, resets = false, 0, {0}, {0}
