package main

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// traffic sends requests of some customers: most are steady, and now and then one sends too many.
func traffic(url string) {
	for range time.Tick(50 * time.Millisecond) {
		route, customer, n := "/api", rand.IntN(20), 1
		switch rand.IntN(100) {
		case 0:
			n = 40
		case 1, 2, 3:
			route = "/login"
		}
		for range n {
			r, err := http.NewRequest(http.MethodGet, url+route, nil) //nolint:gosec // to itself
			if err != nil {
				return
			}
			r.Header.Set("X-Customer", strconv.Itoa(customer))
			if response, err := http.DefaultClient.Do(r); err == nil { //nolint:gosec // as above
				response.Body.Close()
			}
		}
	}
}
