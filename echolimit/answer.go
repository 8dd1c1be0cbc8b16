package echolimit

import (
	"reflect"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// refuse answers with status unless the handler has written or returns an error of its own. For
// d.Err() and cause, which it may return, it answers as without the handler.
func refuse(c echo.Context, status int, cause error, handler func() error) error {
	c.Response().Status = status
	err := handler()
	switch {
	case adapter.IsRefusal[*echo.HTTPError, *core.LimitedError](err, cause):
		return answer(c, core.ProblemOf(err), func() error { return err })
	case err != nil || c.Response().Committed:
		return err
	}
	return c.NoContent(c.Response().Status)
}

func answerDenied(c echo.Context, d core.Decision) error { return answer(c, d.Problem(), d.Err) }
func answerError(c echo.Context, err error) error {
	return answer(c, core.ProblemOf(err), func() error { return err })
}

// answer writes the problem document, unless the application answers errors itself. It never does both:
// after an error the Timeout middleware drops what was written.
func answer(c echo.Context, p adapter.Problem, cause func() error) error {
	switch e := c.Echo(); {
	case c.Response().Committed:
		return nil
	case reflect.ValueOf(e.HTTPErrorHandler).Pointer() != reflect.ValueOf(e.DefaultHTTPErrorHandler).Pointer():
		if p.RetryAfter > 0 {
			c.Response().Header().Set(echo.HeaderRetryAfter, strconv.FormatInt(p.RetryAfter, 10))
		}
		return &echo.HTTPError{Code: p.Status, Message: p.Title, Internal: cause()}
	}
	if p.AnswerRPC(c.Response(), c.Request()) {
		return nil
	}
	p.SetHeaders(c.Response().Header())
	c.Blob(p.Status, adapter.ProblemType, p.JSON()) // an error only says that the client is gone
	return nil
}
