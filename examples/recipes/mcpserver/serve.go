// Package mcpserver limits an MCP server so that agents read why a call was denied, and when to try again.
package mcpserver

import (
	"encoding/json"
	"io"
	"math"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// New serves an MCP server over streamable HTTP. Each message of a client is a request of the limiter.
func New(limits core.Policy, key core.Key, server *mcp.Server, opts ...core.Option) http.Handler {
	limit := nethttp.New(limits, key, append(opts, core.WithName("mcp"), nethttp.WithDeny(Deny))...)
	return limit(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
}

type limited struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			RetryAfter float64  `json:"retryAfter,omitempty"` // seconds; none if that is unknown or no wait helps
			Violated   []string `json:"violatedPolicies"`
		} `json:"data"`
	} `json:"error"`
}

// Deny answers a call with a JSON-RPC error that has its id, and status 200: the transport asks for a response of
// JSON-RPC, and clients such as those of the SDKs for Go and Python do not read the body of a 429. What has no id, such
// as a notification or the GET of a stream, has no such response, so its status is 429.
func Deny(w http.ResponseWriter, r *http.Request, d core.Decision) {
	id := idOf(http.MaxBytesReader(w, r.Body, 64<<10))
	problem := d.Problem()
	if id == nil {
		problem.SetHeaders(w.Header())
		w.WriteHeader(problem.Status)
		w.Write(problem.JSON())
		return
	}
	answer := limited{Version: "2.0", ID: id}
	answer.Error.Code = problem.Status // outside the codes that JSON-RPC and MCP reserve
	answer.Error.Message = problem.Message()
	answer.Error.Data.RetryAfter = math.Ceil(d.RetryAfter.Seconds())
	answer.Error.Data.Violated = d.Violated
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	json.NewEncoder(w).Encode(answer)
}

// idOf returns the id of a call, which is a string or a number, or nil.
func idOf(body io.Reader) (id json.RawMessage) {
	var call struct {
		ID     any    `json:"id"`
		Method string `json:"method"`
	}
	decoder := json.NewDecoder(body)
	decoder.UseNumber() // large numbers stay as they are
	if decoder.Decode(&call) != nil || call.Method == "" {
		return nil
	}
	switch call.ID.(type) {
	case string, json.Number:
		id, _ = json.Marshal(call.ID)
	}
	return id
}
