module github.com/sashlimit/sash/examples/recipes

go 1.25.0

replace github.com/sashlimit/sash => ../..

require (
	github.com/redis/go-redis/v9 v9.7.3
	github.com/redis/rueidis v1.0.79
	github.com/sashlimit/sash v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	golang.org/x/sys v0.47.0 // indirect
)
