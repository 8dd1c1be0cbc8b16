package main

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// proxy passes requests on. The service behind it may believe X-Forwarded-For, -Host and -Proto, because what clients
// write there is removed.
func proxy(to *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			maps.DeleteFunc(r.Out.Header, func(name string, _ []string) bool { return isFromProxy(name) })
			r.Out.Header.Del("Expect") // with a 100 of the service, ReverseProxy would forget what the limiter has set
			r.SetURL(to)
			r.SetXForwarded()
		},
		Transport: &http.Transport{
			MaxIdleConnsPerHost:   100, // all connections are to one host, for which the default is 2
			IdleConnTimeout:       time.Minute,
			ResponseHeaderTimeout: time.Minute,
		},
	}
}

// isFromProxy reports whether services believe that a proxy has written this field: the client's address, or the path,
// which rules compare with that of the request. To many services an underscore is a hyphen.
func isFromProxy(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	switch name {
	case "forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip",
		"fastly-client-ip", "x-rewrite-url":
		return true
	}
	return strings.HasPrefix(name, "x-forwarded") || strings.HasPrefix(name, "x-original-")
}

// serve serves until ctx ends, and then finishes the requests that it has begun.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	// There is no limit for bodies, which may be long uploads, downloads and streams.
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(errors.New("requests were cut off after 20 seconds"), err, server.Close())
	}
	return nil
}
