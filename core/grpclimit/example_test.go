package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/grpclimit"
)

// Each address may send two calls a minute, here to grpc-go's health service.
func Example() {
	limiter, err := core.New(core.PerMinute(2), core.ByIP())
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.Unary(limiter)),
		grpc.ChainStreamInterceptor(grpclimit.Stream(limiter)),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		client := grpc_health_v1.NewHealthClient(conn)
		_, err := client.Check(context.Background(), new(grpc_health_v1.HealthCheckRequest))
		fmt.Printf("%v %q\n", status.Code(err), status.Convert(err).Message())
	}
	// Output:
	// OK ""
	// OK ""
	// ResourceExhausted "Quota Exceeded: Try again in 60 seconds."
}

// A client that sends many messages on a stream is slowed down to three a minute.
func ExampleStreamMessagesWait() {
	limiter, err := core.New(core.PerMinute(3), core.ByIP())
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainStreamInterceptor(grpclimit.StreamMessagesWait(limiter)))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
}

// Each user has a quota for every method. The interceptor that authenticates puts the user into the context.
func ExampleByMethod() {
	type userKey struct{}
	user := core.By(func(ctx context.Context) (string, error) {
		name, _ := ctx.Value(userKey{}).(string)
		return name, nil // an empty string is no key
	})
	limiter, err := core.New(core.PerMinute(100), core.Join(core.First(user, core.ByIP()), grpclimit.ByMethod()))
	if err != nil {
		log.Fatal(err)
	}
	grpc.NewServer(grpc.ChainUnaryInterceptor(grpclimit.Unary(limiter)))
}

// A denied call ends with an error of your own.
func ExampleWithDeny() {
	_, err := core.New(core.PerMinute(100), core.ByIP(),
		grpclimit.WithDeny(func(_ context.Context, d core.Decision) error {
			if d.Banned {
				return status.Error(codes.PermissionDenied, "come back tomorrow")
			}
			return nil // the limiter's own error
		}))
	if err != nil {
		log.Fatal(err)
	}
}

// The error of a call without a key tells what to do.
func ExampleWithError() {
	_, err := core.New(core.PerMinute(100), core.ByHeader("X-API-Key", core.Unverified),
		grpclimit.WithError(func(_ context.Context, err error) error {
			if core.ProblemOf(err).Status == 400 {
				return status.Error(codes.Unauthenticated, "send your x-api-key")
			}
			return err // which the limiter answers
		}))
	if err != nil {
		log.Fatal(err)
	}
}
