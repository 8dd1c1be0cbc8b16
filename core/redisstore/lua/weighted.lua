-- What scripts for takes of any cost on one log each are asked.
-- Provides n, how many keys there are; r, the length of reply; plain, nil where ARGV has the long form; limits, how
-- many there are; whole, what precedes a whole reply; usual, whether there are short paths; quota, window; and what
-- cost.lua expects.
local n, logs = #KEYS, 1
local text, reply, r = ARGV[n + 1], {}, 0
local varies = text:byte() == 86 -- in the short form, which then begins with "V"
local ttl = varies and text:sub(2) or text
local peek = ttl == 'P'
local plain = peek and 0 or tonumber(ttl)
local limits, whole = (#ARGV - n - (plain and 1 or 5)) / 2, plain and 1 or 0
local usual = limits == 1 and not peek and (plain or text == 'c' and ARGV[n + 2] == ARGV[n + 7] and ARGV[n + 4] == '1')
local quota, window = ARGV[n + (plain and 2 or 6)] + 0, ARGV[#ARGV] + 0
local quotas, windows, ttls = {quota}, {window}, {plain and ttl or ARGV[n + 3]} -- of text
local id, base, ask, lastOf, decide, failed = nil, 0, nil, nil, nil, nil
