package core

// ForgetSharing has limiters that were made before forgotten, and what was logged of them.
func ForgetSharing() {
	sharers.Lock()
	defer sharers.Unlock()
	sharers.of, sharers.said = nil, nil
}

// Sharers is how many limiters are remembered.
func Sharers() (n int) {
	sharers.Lock()
	defer sharers.Unlock()
	for _, all := range sharers.of {
		n += len(all)
	}
	return n
}
