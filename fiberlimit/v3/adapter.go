package fiberlimit

import (
	"cmp"
	"context"
	"errors"
	"reflect"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/fasthttpadapter"
)

// request shows a fiber.Ctx to core.
type request struct{ c fiber.Ctx }

func (q request) Context() context.Context { return q.c.Context() }
func (q request) Peer() adapter.Peer       { return fasthttpadapter.PeerOf(q.c.RequestCtx(), fiberPath) }
func (q request) Value(key any) any        { return cmp.Or(q.c.Locals(key), q.Context().Value(key)) }
func (q request) Native() any              { return q.c }
func (q request) Gone() bool               { return false } // fasthttp does not look while a handler runs

func (q request) Header(name string) []string {
	return fasthttpadapter.HeaderOf(q.c.RequestCtx(), name)
}

func (q request) SetContext(ctx context.Context) { q.c.SetContext(ctx) }

// Target returns texts in the request's memory.
func (q request) Target() adapter.Target {
	of := q.c.App().Config()
	return fasthttpadapter.TargetOf(q.c.RequestCtx(), q.c.Method(), q.c.Path(), of.CaseSensitive, of.StrictRouting)
}

var fiberPath = reflect.TypeFor[fiber.App]().PkgPath()

// refuse answers with status unless the handler sets another one or returns an error of its own. For
// d.Err() and cause, which it may return, it answers as without the handler. A panic would end the process.
func refuse(c fiber.Ctx, l *core.Limiter, status int, cause error, handler func() error) error {
	c.Status(status)
	switch err := adapter.Guard(handler); {
	case errors.As(err, new(*adapter.PanicError)):
		l.Report(c.Context(), err)
		return answerError(c, err)
	case adapter.IsRefusal[*fiber.Error, *core.LimitedError](err, cause):
		return answerError(c, err)
	default:
		return err
	}
}

func answerDenied(c fiber.Ctx, d core.Decision) error { return answer(c, d.Problem(), d.Err) }
func answerError(c fiber.Ctx, err error) error {
	return answer(c, core.ProblemOf(err), func() error { return err })
}

// answer makes the cause only where it is asked for: it is as large as a Decision.
func answer(c fiber.Ctx, p adapter.Problem, cause func() error) error {
	h := fasthttpadapter.Header{ResponseHeader: &c.Response().Header}
	own := reflect.ValueOf(c.App().Config().ErrorHandler).Pointer()
	if own != reflect.ValueOf(fiber.DefaultErrorHandler).Pointer() {
		p.SetRetryAfter(h)
		return adapter.ErrorWithCause(fiber.NewError(p.Status, p.Title), cause())
	}
	p.SetHeaders(h)
	return c.Status(p.Status).Send(p.JSON())
}

// serve tells d the status. That of an error is known when the app's error handler has answered it.
func serve(c fiber.Ctx, d core.Decision) (err error) {
	if ctx, asked := d.Context(c.Context()); asked {
		c.SetContext(ctx)
	}
	d.Serve(func() int {
		defer func() { // of a panic, too: fasthttp goes on with what the handler has begun
			if timedOut(c) == nil && (c.Response().IsBodyStream() || c.RequestCtx().Hijacked()) {
				fasthttpadapter.ReleaseAtEnd(c.RequestCtx(), d.Deferred())
			}
		}()
		err = c.Next()
		if answer := timedOut(c); answer != nil {
			return answer.StatusCode()
		}
		if err != nil && d.Response() != nil {
			if err = c.App().ErrorHandler(c, err); err != nil { // as fiber does, which must not ask it again
				err = c.SendStatus(fiber.StatusInternalServerError)
			}
		}
		if status := c.Response().StatusCode(); status != fiber.StatusOK || !c.RequestCtx().Hijacked() {
			return status
		}
		return fiber.StatusSwitchingProtocols // which a handler that has taken over the connection may send itself
	})
	return err
}

// timedOut returns what was answered in place of what the handler answers, as by fiber's Timeout behind the limiter, or
// nil. The handler may then still use c.
func timedOut(c fiber.Ctx) *fasthttp.Response { return c.RequestCtx().LastTimeoutErrorResponse() }
