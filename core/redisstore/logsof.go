package redisstore

// LogsOf tells limiters which stores hold the same logs: those of one client and prefix.
func (s *store) LogsOf() (client any, prefix string) { return s.client, s.prefix }
