package jwtkey

import (
	"context"
	"net/http"
	"reflect"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core/adapter"
)

// Claims returns the claims of the token that a key of this package has verified for the request, so that a plan in
// them needs no second verification:
//
//	core.LimitBy(func(r *http.Request) core.Limits {
//		if claims, ok := jwtkey.Claims(r); ok && claims["plan"] == "pro" {
//			return core.Limits{core.PerMinute(1000)}
//		}
//		return core.Limits{core.PerMinute(100)}
//	})
//
// A limiter reads its key before it calls LimitBy and WithCost, and both get the claims, as do the handlers behind the
// limiter. request is what these functions take in your framework, such as *http.Request, *gin.Context, echo.Context or
// *fiber.Ctx, or the request's context.Context.
//
// There are none where nothing was verified: without a token, or with one that is not valid, with another key, and for
// requests that WithSkip or a list has passed before. With net/http and chi there are none either if the only such keys
// are of limits that LimitBy returns. If several keys have verified a token, the last one's claims are returned. With
// [ByContextClaim] they are those that the middleware has left, and where it has left a token without
// [jwt.MapClaims], only "iss" and "sub". Numbers are [encoding/json.Number] with [ByClaim]. Do not write to the map.
func Claims(request any) (claims map[string]any, ok bool) {
	ctx := contextOf(request)
	if ctx == nil {
		return nil, false
	}
	claims, ok = ctx.Value(claimsKey{}).(map[string]any)
	return claims, ok
}

type claimsKey struct{}

// keep makes claims those that Claims returns for the request.
func keep(r adapter.Request, claims jwt.MapClaims) {
	if s, ok := r.(adapter.ContextSetter); ok {
		s.SetContext(context.WithValue(r.Context(), claimsKey{}, map[string]any(claims)))
	}
}

// contextOf returns the context of a framework's request, or nil. The contexts of gin and fiber v3 are values of
// context.Context as well, but do not have what the request's context has.
func contextOf(request any) context.Context {
	switch r := request.(type) {
	case interface{ Context() context.Context }: // net/http, fiber v3
		return r.Context()
	case interface{ Request() *http.Request }: // echo
		return r.Request().Context()
	case interface{ UserContext() context.Context }: // fiber v2
		return r.UserContext()
	}
	if v := reflect.Indirect(reflect.ValueOf(request)); v.Kind() == reflect.Struct {
		if field := v.FieldByName("Request"); field.IsValid() && field.CanInterface() { // gin
			if r, ok := reflect.TypeAssert[*http.Request](field); ok && r != nil {
				return r.Context()
			}
		}
	}
	ctx, _ := request.(context.Context)
	return ctx
}
