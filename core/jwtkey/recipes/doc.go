// Package recipes tests what the README beside it shows.
package recipes
