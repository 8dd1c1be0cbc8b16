#!/bin/sh
# Uses the next release as its users will: from a module proxy on disk that has HEAD under the tags of
# docs/releasing.md, without a replace. It runs each package's examples in a module of their own, tests the nested
# modules that are released already with the root of HEAD, and prints what limiters add to a program.
set -eu
cd "$(dirname "$0")/.."
repo=$PWD
root=github.com/sashlimit/sash
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
others=file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)
export GOFLAGS=-modcacherw GOWORK=off

fail() { echo "users: $*" >&2; exit 1; }
quietly() { "$@" >"$dir/said" 2>&1 || { cat "$dir/said" >&2; fail "$PWD: $*"; }; }
# Direct requirements: those of the root, of the module for fiber v3, and of the benchmarks for other limiters.
requirements() {
	cat "$repo/core/benchmarks/go.mod" "$repo/fiberlimit/v3/go.mod" "$repo/go.mod" |
		sed -n 's/^\t\([^ ]*\) \(v[^ ]*\)$/-require=\1@\2/p' | grep -v "=$root"
}

tags=$(sed -n 's/^| `[^`]*` | `\([^`]*\)` |.*/\1/p' docs/releasing.md)
git clone --quiet --bare "file://$repo" "$dir/clone"
releases=
for tag in $tags; do
	version=${tag##*/} module=$root
	[ "$tag" = "$version" ] || module=$root/${tag%/*}
	case $version in v[01].*) ;; *) module=$module/${version%%.*} ;; esac
	folder=${module#"$root"}
	grep -q "^module $module$" ".$folder/go.mod" || fail "$tag is no tag of the module in .$folder"
	# Users mix versions, so the last release has to pass its tests with this root.
	last=$(git -c versionsort.suffix=- tag --sort=-version:refname --list "${tag%%.*}.*" | head -n 1)
	if [ -n "$folder" ] && [ -n "$last" ]; then
		git -C "$dir/clone" worktree add --quiet --detach "$dir/last$folder" "$last"
		cd "$dir/last$folder$folder"
		go mod edit -replace "$root=$repo"
		GOFLAGS=-mod=mod quietly go test -short ./...
		cd "$repo"
		echo "users: $last passes with this root"
	fi
	git -C "$dir/clone" update-ref "refs/tags/$tag" HEAD
	releases="$releases $module@$version"
done
current=$(echo "$releases" | cut -d ' ' -f 2)
for file in $(git ls-files '*/go.mod'); do
	! grep -q "^	$root v" "$file" || grep -q "^	$root ${current#*@}$" "$file" || fail "$file does not require $current"
done

cd "$dir"
# shellcheck disable=SC2086 # several modules
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$dir/clone.insteadOf" GIT_CONFIG_VALUE_0="https://$root" \
	GOMODCACHE=$dir/made GOPRIVATE=$root quietly go mod download $releases
# The module cache of the machine must never have these releases, and the checksum database cannot know them.
export GOPROXY="file://$dir/made/cache/download,$others" GOMODCACHE="$dir/cache" GOSUMDB=off GOPRIVATE= GONOPROXY=

for package in nethttp ginlimit chilimit echolimit echolimit/v5 fiberlimit fiberlimit/v3 core/grpclimit \
	core/redisstore; do
	mkdir -p "$dir/examples/$package"
	cd "$dir/examples/$package"
	cp "$repo/$package/example_test.go" .
	quietly go mod init demo
	# shellcheck disable=SC2046,SC2086
	quietly go mod edit $(printf ' -require=%s' $releases)
	quietly go mod tidy
	quietly go test .
	for used in $(go list -m -f '{{.Path}}@{{.Version}}{{with .Replace}}=>{{.}}{{end}}' all | grep "^$root"); do
		case " $releases " in *" $used "*) ;; *) fail "$package uses $used, not one of$releases" ;; esac
	done
	echo "users: the examples of $package pass with the released modules"
done

# figures NAME IMPORTS CODE prints the row of a program.
figures() {
	mkdir -p "$dir/figures" && cd "$dir/figures" && rm -f go.* main.go
	printf 'package main\nimport (%s)\nfunc main() {\n%s\n}\n' "$2" "$3" >main.go
	quietly go mod init demo
	case $2 in
	*$root*) quietly go mod edit $(printf ' -require=%s' $releases) ;; # shellcheck disable=SC2046,SC2086
	*)
		for required in $(requirements); do
			path=${required#*=}
			case $2 in *\"${path%@*}*) quietly go mod edit "$required" ;; esac
		done
		;;
	esac
	quietly go mod tidy
	quietly go build -trimpath -o demo
	linked=$(go version -m demo | grep -c '	dep	' || true)
	size=$(wc -c <demo | awk '{ print $1 / 1e6 }')
	printf '| %s | %d | %d | %.1f |\n' "$1" "$(go list -m all | wc -l)" "$linked" "$size"
}
http() { figures "net/http$1" "\"net/http\";$2" \
	"h := http.Handler(http.NotFoundHandler()); $3; http.ListenAndServe(\"\", h)"; }
redis() { http " and go-redis$1" "\"github.com/redis/go-redis/v9\";$2" \
	"rdb := redis.NewClient(new(redis.Options)); $3; rdb.Close()"; }
gin() { figures "gin$1" "\"github.com/gin-gonic/gin\";$2" "r := gin.Default(); $3; r.Run()"; }
fiber() { figures "fiber v3$1" "\"github.com/gofiber/fiber/v3\";$2" "app := fiber.New(); $3; app.Listen(\"\")"; }
ulule='"time"; "github.com/ulule/limiter/v3"; "github.com/ulule/limiter/v3/drivers'
rate='rate := limiter.Rate{Period: time.Minute, Limit: 3}'

printf '\n| | modules | linked | binary, MB |\n|---|---:|---:|---:|\n'
http '' '' ''
http ', sash' "\"$root/core\"; \"$root/nethttp\"" 'h = nethttp.New(core.PerMinute(3), core.ByIP())(h)'
http ', httprate' '"time"; "github.com/go-chi/httprate"' 'h = httprate.LimitByIP(3, time.Minute)(h)'
http ', tollbooth' '"github.com/didip/tollbooth/v7"' 'h = tollbooth.LimitHandler(tollbooth.NewLimiter(3, nil), h)'
http ', ulule/limiter' "$ulule/middleware/stdlib\"; \"github.com/ulule/limiter/v3/drivers/store/memory\"" \
	"$rate; h = stdlib.NewMiddleware(limiter.New(memory.NewStore(), rate)).Handler(h)"
redis '' '' ''
redis ', sash' "\"$root/core\"; \"$root/core/redisstore\"; \"$root/nethttp\"" \
	'h = nethttp.New(core.PerMinute(3), core.ByIP(), core.WithStore(redisstore.New(rdb)))(h)'
redis ', redis_rate' '"github.com/go-redis/redis_rate/v10"' \
	'rate := redis_rate.NewLimiter(rdb); h = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		rate.Allow(r.Context(), r.RemoteAddr, redis_rate.PerMinute(3)) })'
redis ', ulule/limiter' "$ulule/middleware/stdlib\"; store \"github.com/ulule/limiter/v3/drivers/store/redis\"" \
	"$rate; counts, _ := store.NewStore(rdb); h = stdlib.NewMiddleware(limiter.New(counts, rate)).Handler(h)"
gin '' '' ''
gin ', sash' "\"$root/core\"; \"$root/ginlimit\"" 'r.Use(ginlimit.New(core.PerMinute(3), core.ByIP()))'
gin ', gin-rate-limit' '"time"; ratelimit "github.com/JGLTechnologies/gin-rate-limit"' 'r.Use(ratelimit.RateLimiter(
	ratelimit.InMemoryStore(&ratelimit.InMemoryOptions{Rate: time.Minute, Limit: 3}), new(ratelimit.Options)))'
gin ', ulule/limiter' "$ulule/store/memory\"; middleware \"github.com/ulule/limiter/v3/drivers/middleware/gin\"" \
	"$rate; r.Use(middleware.NewMiddleware(limiter.New(memory.NewStore(), rate)))"
fiber '' '' ''
fiber ', sash' "\"$root/core\"; \"$root/fiberlimit/v3\"" 'app.Use(fiberlimit.New(core.PerMinute(3), core.ByIP()))'
fiber ", fiber's own" '"time"; "github.com/gofiber/fiber/v3/middleware/limiter"' \
	'app.Use(limiter.New(limiter.Config{Max: 3, Expiration: time.Minute}))'
