-- How a limit counts that is no sliding log.
-- Expects algorithm, its letter; first, where the arguments after its quota begin; now, call. Sets the functions view,
-- till and put, of which each knows what the one before has found out:
--
-- view takes the value of the key, or false, and returns how many units are used now, and whether the value must be
-- written even if none are added: then the clock was set back, and a denial would last as long;
-- till returns how long it takes (us) until no more than that many are used, which is less than now;
-- put adds units and writes the value.
if algorithm == 'w' or algorithm == 'W' then
  -- include fixed_window
elseif algorithm == 'c' then
  -- include calendar
elseif algorithm == 's' then
  -- include sliding_counter
else
  -- include token_bucket
end
