package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
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
			r, err := http.NewRequest(http.MethodGet, url+route, nil)
			if err != nil {
				return
			}
			r.Header.Set("X-Customer", fmt.Sprint(customer))
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
		}
	}
}
