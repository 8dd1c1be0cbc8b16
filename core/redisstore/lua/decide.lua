-- Decides by sliding logs. The windows are computed in count, longest and resets, and in the short paths. Limits of
-- other algorithms are decided by counter.lua, and beside logs by counter_joint.lua.
-- Expects the request, call, now, stamp, far, many; before, whether the takes were executed before, as far as is known;
-- agree, which tells how many of the takes that fit are recorded, or nil if all are. Provides the function decide.
-- include functions

-- decide admits and records, of takes on one key with that cost and 8 bytes of ids each, the first ones that fit. It
-- returns an error; or nil and, for a whole reply, how many are admitted, the wait of the others, and the wait by
-- shadow limits. It fills used and resets.
decide = function(key, ids, takes, cost)
  -- If the takes were executed before: how many of their units are there, whether they were denied, and since when.
  local own, denied, at = 0, false, nil
  -- How many takes are admitted; whether the cost is above a quota; units added; whether to look at the log once more.
  local admitted, never, new, again
  -- Of the log: how many entries and units it has, and how many of these are weights; the score of the oldest entry,
  -- false if there is none, nil if it is not known any more.
  local entries, units, extra, oldest
  -- What mark_read tells; whether the mark is missing, or has too short a window.
  local mark, near, weighted, kept, extend
  -- Whether its scores are those of "keep:"; by how much they are higher than stamps; now and stamp as such scores; how
  -- long entries stay (us); the TTL (ms).
  local shifted, shift, logNow, logStamp, logKeep, logTtl
  -- Whether entries have expired; whether these were not counted; whether an entry from the future was seen.
  local expired, uncounted, future
  if before then own, denied, at = executed(key, ids, takes, cost) end
  repeat
    -- include look
    -- include count
    if agree then admitted = agree(denied and 0 or admitted, denied and 0 or own / cost, denied) end
    -- include record
  until not again
  local refused = admitted < takes and not (upTo and admitted > 0)
  local mine = denied and 0 or own + new -- what was trimmed for a denied take is not known when it is sent again
  -- include shadow
  if new > 0 then
    -- include trim
  end
  -- include extend
  -- include wait
  -- include resets
  -- include repair
  return nil, admitted, wait, shadow
end
