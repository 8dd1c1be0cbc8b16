-- The takes of one id in ARGV. Expects id. Provides takes, how many; their cost; ids, without it.
local takes, cost, ids = math.floor(#id / 8), 1, id
if #id % 8 > 0 then
  ids, cost = id:sub(1, takes * 8), struct.unpack('>I4', id, takes * 8 + 1)
end
