-- The sizes up to which scripts choose one way, and from which on another.
local many = 2000 -- so many scores change in about a millisecond
