module github.com/sashlimit/sash/echolimit/v5

go 1.25.0

require (
	github.com/labstack/echo/v5 v5.3.1
	github.com/sashlimit/sash v0.1.0
)

require (
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace github.com/sashlimit/sash => ../..
