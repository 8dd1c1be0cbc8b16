-- Provides the function takesOf.

-- takesOf returns how many takes there are in an argument with ids, what each costs, and the ids without that. A take
-- for up to so many units is decided as so many takes of one unit, of which the first ones are recorded as one entry.
local function takesOf(id, upTo)
  local takes, cost = math.floor(#id / 8), 1
  if #id % 8 > 0 then id, cost = id:sub(1, takes * 8), struct.unpack('>I4', id, takes * 8 + 1) end
  if upTo then takes, cost = cost, 1 end
  return takes, cost, id
end
