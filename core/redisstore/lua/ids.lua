-- The takes of one argument with ids. Expects id, upTo. Sets takes, how many; cost, that of each; and ids
-- without it.
-- A take for up to so many units is decided as so many takes of one unit, of which the first ones are recorded as one
-- entry.
takes, cost, ids = #id / 8, 1, id
if #id % 8 > 0 then
  takes = takes - 0.5
  ids, cost = id:sub(1, takes * 8), struct.unpack('>I4', id, takes * 8 + 1)
end
if upTo then takes, cost = cost, 1 end
