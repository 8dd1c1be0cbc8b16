-- Expects call, stamp, rarely. Provides the function below.

-- add adds an entry of this instant for each id, with the ending after the id. It returns an error.
local function add(key, ids, ending)
  local i, number, tries = 1, 0, 0
  while i <= #ids do
    local done = redis.pcall('XADD', key, stamp .. '-' .. number, 'i', ids:sub(i, i + 7) .. ending)
    if not done.err then -- a text
      i, number = i + 8, number + 1
    elseif tries == 2 or not done.err:find('equal or smaller', 1, true) then
      return done
    else -- there are entries of this instant, or from the future, or there were until they were removed
      tries = tries + 1
      local newest = call('XREVRANGE', key, '+', '-', 'COUNT', '1')[1]
      if tries == 1 and newest and newest[1]:sub(1, 16) == stamp then
        number = newest[1]:sub(18) + 1
      else
        local _, rewrite, entriesOf = rarely()
        local failed
        tries, number, failed = 2, rewrite(key, entriesOf(key))
        if failed then return failed end
      end
    end
  end
end
