// Service limits requests that other programs serve, by the rules of a file, over HTTP.
//
//	go run ./examples/service -rules examples/gateway/limits.yaml -listen localhost:8081
//
// With REDIS_URL set, several of it share what they have counted. A changed file is taken over at once, and on SIGHUP.
//
// # Who may call it
//
// The service believes what it is told: whose address a request has, its path, its user. It must therefore be reachable
// only by the programs and proxies that ask it: let it listen on localhost or in a private network.
//
// # POST /check
//
// For programs in any language. All fields may be left out; data holds what rules ask for as values and claims, path is
// decoded and has no query, and cost is that of the rules if it is 0:
//
//	{"method": "POST", "host": "example.com", "path": "/login", "ip": "192.0.2.1",
//	 "headers": {"X-Plan": "free"}, "data": {"user": "7"}, "cost": 1}
//
// The answer is 200 or, for a denied request, 429, with Retry-After and the RateLimit fields in the header:
//
//	{"allowed": false, "policy": "login", "remaining": 0, "retry_after": 12, "violated": ["login-5-per-minute"]}
//
// retry_after is in seconds, and 0 if waiting does not help. remaining is null if no limit was asked. Any other answer
// is a problem document (RFC 9457): 400 if the body is not such a JSON object, or the request has no key that a rule
// asks for; 403 for a client on a deny list; 503 if Redis does not answer and the file says failure: closed.
//
// # GET /auth
//
// For the sub-requests of nginx (auth_request) and Traefik (forwardAuth), with status 200, 429, 403, 400 or 503 and the
// same header. nginx passes only 401 and 403 on, so it asks for /auth?denied=403; see nginx.conf in this directory.
// The request is read from X-Original-Method and X-Original-URI (nginx), with Host, or from X-Forwarded-Method,
// X-Forwarded-Uri and X-Forwarded-Host (Traefik). Proxies pass their clients' headers on as well, so a request with
// both forms is forged, and refused with 400. nginx must set both of its own, or clients could.
//
// The client is the last address of X-Forwarded-For, where each proxy writes the peer of its connection; what stands
// before it is X-Forwarded-For as the proxy got it. So the keys ip and {forwarded: [NETWORK]} find what they would
// find in the proxy. For Traefik:
//
//	http:
//	  middlewares:
//	    limits:
//	      forwardAuth: {address: "http://localhost:8081/auth"}
//
// Leave its option trustForwardHeader at false: with true, Traefik takes X-Forwarded-Method and X-Forwarded-Uri from
// clients. With false, its X-Forwarded-For has the peer alone. So behind a load balancer or another proxy, all clients
// would share a quota: use nginx or examples/gateway there.
//
// # /authz/PATH
//
// For Envoy's filter ext_authz, with http_service and path_prefix: /authz. Method, host and path are those of the
// request. Envoy sends only headers that allowed_headers names, and puts its own address behind the client's in
// X-Forwarded-For. So name x-forwarded-for there, and write {forwarded: [NETWORK]} with Envoy's addresses where a rule
// would have ip, which is Envoy's address.
//
// # If the service does not answer
//
// nginx and Traefik answer with 500 then, and Envoy with 403. To let requests pass instead, uncomment a line in
// nginx.conf, or set failure_mode_allow for Envoy; Traefik cannot. Programs that ask /check decide themselves.
//
// # Requests in flight
//
// The service gets no notice when a request ends. It ends what a request holds before it answers, so limits such as
// "4 in flight" never deny here. Use them in examples/gateway or in middleware.
package main
