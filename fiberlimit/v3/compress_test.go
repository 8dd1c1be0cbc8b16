// Fiber's compress does not compile for 32 bits.

//go:build !386 && !arm && !mips && !mipsle

package fiberlimit_test

import (
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/compress"
)

func init() { around["compress"] = fresh(func() fiber.Handler { return compress.New() }) }
