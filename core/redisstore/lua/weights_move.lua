-- Moves the entries of a log with weights that are later than an instant to that one.
-- Expects what weights_blocks.lua provides. Provides moveTo.
local function moveTo(key, s, at, scale)
  local score, text = textOf(scale * at), s.open
  cutBlock(key, s)
  for _, block in ipairs(call('ZRANGEBYSCORE', key, '(-4e15', '-' .. textOf(at))) do -- those that end then or later
    local newer = call('ZCOUNT', key, '(' .. textOf(scale * struct.unpack('>I7', block)), '+inf')
    text = block:sub(15) .. zero:rep(newer - #text / 4) .. text
    call('ZREM', key, block)
  end
  local n, of, open = math.max(#text / 4, call('ZCOUNT', key, score, '+inf')), {}, {}
  text = zero:rep(n - #text / 4) .. text
  for i, member in ipairs(call('ZRANGE', key, -n, '-1')) do of[member] = text:sub(4 * i - 3, 4 * i) end
  for _, late in ipairs(call('ZRANGEBYSCORE', key, '(' .. score, '+inf')) do call('ZADD', key, 'XX', score, late) end
  for i, member in ipairs(call('ZRANGE', key, -n, '-1')) do open[i] = of[member] end -- in their new order
  s.open, s.newest, s.first, s.lag, s.gone = table.concat(open), at, math.min(s.first, at), longest, unknown
end
