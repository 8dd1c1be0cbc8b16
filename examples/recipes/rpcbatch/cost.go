// Package rpcbatch limits JSON-RPC 2.0, and MCP before 2025-06-18, by the number of calls: a batch has many in one
// request.
package rpcbatch

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// MaxBody is how many bytes of a request are read, by Calls and by the handler.
const MaxBody = 1 << 20

// New limits a handler of JSON-RPC.
func New(limits core.Policy, key core.Key, handler http.Handler) http.Handler {
	limit := nethttp.New(limits, key, core.WithName("rpc"), core.WithCost(Calls))
	return http.MaxBytesHandler(limit(handler), MaxBody)
}

// Calls returns how many calls a request has, and puts the body back for the handler. Like a handler, it reads the
// first value and not what follows it, so a batch costs as much if junk makes the rest of the body invalid or too
// large. A body without a call costs 1, and the handler answers what is wrong with it.
func Calls(r *http.Request) int {
	head, _ := io.ReadAll(r.Body) // MaxBytesHandler limits it, and gives the handler the error once more
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	body := json.NewDecoder(bytes.NewReader(head))
	if begin, _ := body.Token(); begin != json.Delim('[') {
		return 1
	}
	var call json.RawMessage
	calls := 0
	for body.More() && body.Decode(&call) == nil {
		calls++
	}
	return max(calls, 1)
}
