package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/nethttp"
)

// All servers whose limiters use this Redis share the quotas.
func ExampleNew() { //nolint:testableexamples // it needs a server, and serves for ever
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limit := nethttp.New(core.PerMinute(100), core.ByIP(), core.WithStore(redisstore.New(client)))
	server := http.Server{Addr: ":8080", Handler: limit(http.DefaultServeMux), ReadTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}

// A program that starts asks whether the store can work on its server. Without one, the failure policy decides.
func ExampleCheck() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // where nothing listens
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := redisstore.Check(ctx, client)
	var failed *core.StoreError
	fmt.Println(errors.As(err, &failed), failed.Class)
	// Output: true refused
}
