package ginlimit

import (
	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

func answerDenied(c *gin.Context, d core.Decision) { write(c, d.Problem()) }
func answerError(c *gin.Context, err error)        { write(c, core.ProblemOf(err)) }

func write(c *gin.Context, p adapter.Problem) {
	if p.AnswerRPC(c.Writer, c.Request) {
		return
	}
	p.SetHeaders(c.Writer.Header())
	c.Data(p.Status, adapter.ProblemType, p.JSON())
}

// refuse answers with status unless the handler writes another one. The handlers behind it do not run, even if
// answer calls c.Next, or panics and middleware recovers that.
func refuse(c *gin.Context, status int, answer func()) {
	c.Abort()
	c.Status(status)
	answer()
	c.Writer.WriteHeaderNow()
}
