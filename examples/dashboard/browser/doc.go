// Package browser tests the pages of examples/dashboard in Chromium. It is a module of its own, so that programs which
// use sash do not depend on a browser.
package browser
