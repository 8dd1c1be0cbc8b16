-- Expects call, stamp, rebuilding. Provides the function below.

-- add adds an entry of this instant for each id, with the ending after the id. It returns an error, or nil.
local function add(key, ids, ending)
  local i, number, tries, failed = 1, 0, 0, nil
  while i <= #ids do
    local done = redis.pcall('XADD', key, stamp .. '-' .. number, 'i', ids:sub(i, i + 7) .. ending)
    if not done.err then -- a text
      i, number = i + 8, number + 1
    elseif tries == 2 or not done.err:find('equal or smaller', 1, true) then
      return done
    else -- the log has entries of this instant or from the future, or had some until they were removed
      local newest = tries == 0 and call('XREVRANGE', key, '+', '-', 'COUNT', '1')[1]
      if newest and newest[1]:sub(1, 16) == stamp then
        tries, number = 1, newest[1]:sub(18) + 1
      else
        tries, number, failed = 2, rebuilding().repair(key)
        if failed then return failed end
      end
    end
  end
end
