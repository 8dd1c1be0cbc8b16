package main

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
)

func main() {
	var options []grpc.ServerOption
	// limiter
	server := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	statuses := map[codes.Code]int{codes.OK: 200, codes.ResourceExhausted: 429}
	for range 4 {
		client := grpc_health_v1.NewHealthClient(conn)
		_, err := client.Check(context.Background(), new(grpc_health_v1.HealthCheckRequest))
		fmt.Println(statuses[status.Code(err)])
	}
}
