module github.com/sashlimit/sash/core/grpclimit

go 1.25.0

require (
	connectrpc.com/connect v1.19.1
	github.com/sashlimit/sash v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251202230838-ff82c1b0f217
	google.golang.org/grpc v1.79.3
	google.golang.org/protobuf v1.36.10
)

require (
	github.com/felixge/httpsnoop v1.1.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.38.0 // indirect
)

replace github.com/sashlimit/sash => ../..
