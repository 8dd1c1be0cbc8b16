package calendar_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/internal/testlen"
)

var zoneNames = []string{
	"Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "America/Asuncion", "America/Havana", "America/Juneau",
	"America/New_York", "America/Nuuk", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund",
	"America/St_Johns", "Antarctica/Casey", "Antarctica/Troll", "Asia/Beirut", "Asia/Gaza", "Asia/Kathmandu",
	"Asia/Manila", "Asia/Pyongyang", "Asia/Tehran", "Atlantic/Azores", "Australia/Lord_Howe", "Europe/Berlin",
	"Europe/Dublin", "Europe/London", "Europe/Moscow", "Pacific/Apia", "Pacific/Chatham", "Pacific/Kiritimati",
	"Pacific/Kwajalein", "UTC",
}

func loadZones(t testing.TB) []*time.Location {
	t.Helper()
	zones := []*time.Location{time.FixedZone("", -12*3600-45*60), time.FixedZone("far", 100*3600+1)}
	for _, name := range zoneNames {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	return zones
}

var allUnits = []calendar.Unit{
	calendar.Hour, calendar.Day, calendar.Week, calendar.Month, calendar.Quarter, calendar.Year,
}

// checkTiling reports whether the periods at an instant and around it have no gap and no overlap.
func checkTiling(t *testing.T, c calendar.Calendar, instant time.Time) {
	t.Helper()
	start, end := c.Period(instant)
	if start.After(instant) || !end.After(instant) {
		t.Fatalf("%v: the period of %v is %v to %v", c, instant, start, end)
	}
	for _, edge := range []time.Time{start, end.Add(-1)} {
		if s, e := c.Period(edge); !s.Equal(start) || !e.Equal(end) {
			t.Fatalf("%v: %v is in %v to %v, but its edge %v is in %v to %v", c, instant, start, end, edge, s, e)
		}
	}
	if s, e := c.Period(end); !s.Equal(end) || !e.After(end) {
		t.Fatalf("%v: after %v to %v comes %v to %v", c, start, end, s, e)
	}
	if s, e := c.Period(start.Add(-1)); !e.Equal(start) || !s.Before(start) {
		t.Fatalf("%v: before %v to %v comes %v to %v", c, start, end, s, e)
	}
}

// randomInstant returns an instant that is often within two days of a change of the zone's clock.
func randomInstant(rng *rand.Rand, zone *time.Location, firstYear, lastYear int) time.Time {
	first := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	last := time.Date(lastYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	instant := time.Unix(first+rng.Int64N(last-first), rng.Int64N(1e9)).In(zone)
	if _, change := instant.ZoneBounds(); !change.IsZero() && change.Year() < lastYear && rng.IntN(4) > 0 {
		instant = change.Add(time.Duration(rng.Int64N(int64(96*time.Hour))) - 48*time.Hour)
	}
	if rng.IntN(4) == 0 {
		instant = instant.Truncate(15 * time.Minute)
	}
	return instant
}

func TestTiling(t *testing.T) {
	zones := loadZones(t)
	bounds := make(map[calendar.Unit]map[*time.Location]time.Duration)
	for _, unit := range allUnits {
		bounds[unit] = make(map[*time.Location]time.Duration)
		for _, zone := range zones {
			c := calendar.New(unit, zone)
			bounds[unit][zone] = c.Longest()
		}
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for range 20_000 {
		zone, unit := zones[rng.IntN(len(zones))], allUnits[rng.IntN(len(allUnits))]
		c := calendar.New(unit, zone)
		if rng.IntN(3) > 0 {
			c = c.From(randomInstant(rng, zone, 1800, 2200))
		}
		instant := randomInstant(rng, zone, 1800, 2200)
		checkTiling(t, c, instant)
		start, end := c.Period(instant)
		bound := bounds[unit][zone]
		if length := end.Sub(start); start.Year() >= 1970 && length > bound {
			t.Fatalf("%v: %v to %v is %v, and the bound is %v", c, start, end, length, bound)
		}
	}
}

// oracle computes periods without what the package computes with: it counts the days of a calendar of its own and
// looks at the zone's clock minute by minute.
type oracle struct {
	unit   calendar.Unit
	zone   *time.Location
	anchor time.Time // in the zone
}

func daysIn(year, month int) int {
	days := [...]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
	if month == 2 && (year%4 == 0 && year%100 != 0 || year%400 == 0) {
		days++
	}
	return days
}

// reached returns the first second at which the zone's clock shows a time or a later one. It is right where the clock
// is changed at full minutes only, so from 1973 on.
func (o oracle) reached(year, month, dayOf, h, m, s int) time.Time {
	wall := time.Date(year, time.Month(month), dayOf, h, m, s, 0, time.UTC).Format(time.DateTime)
	instant := time.Date(year, time.Month(month), dayOf, h, m, 0, 0, time.UTC).Add(-15 * time.Hour)
	// The last second of a minute, since the clock may be set back at its end, as at midnight in Cairo.
	for instant.Add(59*time.Second).In(o.zone).Format(time.DateTime) < wall {
		instant = instant.Add(time.Minute)
	}
	for instant.In(o.zone).Format(time.DateTime) < wall {
		instant = instant.Add(time.Second)
	}
	return instant
}

// starts returns when periods start, from before an instant until after it. Where the clock skips a period, it has the
// same start as the next.
func (o oracle) starts(instant time.Time) (starts []time.Time) {
	h, m, s := o.anchor.Clock()
	year, month, dayOf := instant.In(o.zone).Date()
	if o.unit >= calendar.Month {
		step := map[calendar.Unit]int{calendar.Month: 1, calendar.Quarter: 3, calendar.Year: 12}[o.unit]
		// Both neighbours of the month of the instant may have the nearest start.
		count := 12*year + int(month) - 1
		for n := count - step - 1; n <= count+step+1; n++ {
			y, mon := n/12, n%12+1
			if (12*o.anchor.Year()+int(o.anchor.Month())-1-n)%step == 0 {
				starts = append(starts, o.reached(y, mon, min(o.anchor.Day(), daysIn(y, mon)), h, m, s))
			}
		}
		return starts
	}
	reach := 3
	if o.unit == calendar.Week {
		reach = 10
	}
	for n := -reach; n <= reach; n++ {
		// At noon in UTC, all dates exist.
		date := time.Date(year, month, dayOf+n, 12, 0, 0, 0, time.UTC)
		y, mon, d := date.Date()
		switch {
		case o.unit == calendar.Hour:
			for hour := range 24 {
				if -1 <= n && n <= 1 {
					starts = append(starts, o.reached(y, int(mon), d, hour, m, s))
				}
			}
		case o.unit == calendar.Day || date.Weekday() == o.anchor.Weekday():
			starts = append(starts, o.reached(y, int(mon), d, h, m, s))
		}
	}
	return starts
}

func TestPeriodOracle(t *testing.T) {
	testlen.SkipRace(t)
	zones := loadZones(t)
	zones = zones[2:] // the oracle does not look for offsets of 100 hours
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for range 300 {
		zone := zones[rng.IntN(len(zones))]
		unit := allUnits[rng.IntN(len(allUnits))]
		if unit == calendar.Hour && rng.IntN(4) > 0 {
			unit = calendar.Month // hours take the oracle longer
		}
		instant, anchor := randomInstant(rng, zone, 1975, 2150), randomInstant(rng, zone, 1975, 2150)
		if rng.IntN(3) == 0 {
			anchor = time.Date(anchor.Year(), anchor.Month()+1, -rng.IntN(3), anchor.Hour(), 0, 0, 0, zone)
		}
		if rng.IntN(3) == 0 && unit >= calendar.Month { // near where a period may start
			year, month, _ := instant.Date()
			instant = time.Date(year, month, anchor.Day(), anchor.Hour()+rng.IntN(3)-1, anchor.Minute(), 0, 0, zone)
		}
		starts := oracle{unit, zone, anchor}.starts(instant)
		next := slices.IndexFunc(starts, instant.Before)
		if next < 1 {
			t.Fatalf("%v of %v: the oracle has no period", unit, instant)
		}
		c := calendar.New(unit, zone).From(anchor)
		if start, end := c.Period(instant); !start.Equal(starts[next-1]) || !end.Equal(starts[next]) {
			t.Fatalf("%v: the period of %v is %v to %v, want %v to %v",
				c, instant, start, end, starts[next-1].In(zone), starts[next].In(zone))
		}
	}
}

func FuzzPeriod(f *testing.F) {
	zones := loadZones(f)
	f.Add(uint8(0), uint8(0), int64(0), int64(0))
	f.Add(uint8(1), uint8(28), int64(1325239200e6), int64(1325260800e6)) // Samoa's skipped day
	f.Add(uint8(5), uint8(7), int64(-62135596800e6), int64(951782400e6)) // year 1, February 29
	f.Add(uint8(0), uint8(7), int64(-3225223728e6), int64(1799e6))       // Alaska's repeated day
	f.Add(uint8(3), uint8(24), int64(math.MinInt64), int64(math.MaxInt64))
	f.Add(uint8(2), uint8(24), int64(math.MaxInt64), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, unit, zone uint8, micro, anchor int64) {
		c := calendar.New(allUnits[int(unit)%len(allUnits)], zones[int(zone)%len(zones)])
		checkTiling(t, c, time.UnixMicro(micro))
		checkTiling(t, c.From(time.UnixMicro(anchor)), time.UnixMicro(micro))
	})
}
