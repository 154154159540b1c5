// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"math/rand"
	"testing"
	"time"
)

// Two weeks of looks at the clocks: a lease of a day is renewed before it ends, by a host that is always awake, one
// that sleeps every night, and one whose wall clock operators set.
func TestTwoWeeksOfALease(t *testing.T) {
	const margin = time.Hour
	for name, wall := range map[string]func(minute int, r *rand.Rand) (sleep, set time.Duration){
		"awake": func(int, *rand.Rand) (sleep, set time.Duration) { return 0, 0 },
		"sleeps at night": func(minute int, _ *rand.Rand) (sleep, set time.Duration) {
			if minute%(16*60) == 0 {
				sleep = 8 * time.Hour
			}
			return sleep, 0
		},
		"is set": func(minute int, r *rand.Rand) (sleep, set time.Duration) {
			if minute%500 == 0 {
				set = time.Duration(r.Intn(7200)-3600) * time.Second
			}
			return 0, set
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewSource(1))
			start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			shown, passed, last := start, time.Duration(0), time.Duration(0)
			c := clock{ttl: TTL, margin: margin, wall: shown}
			renewals := 0
			for minute := 1; passed < 14*24*time.Hour; minute++ {
				sleep, set := wall(minute, r)
				passed, shown, c.awake = passed+clockCheck+sleep, shown.Add(clockCheck+sleep+set), c.awake+clockCheck
				if age := passed - last; age > TTL {
					t.Fatalf("after %s the lease had ended %s ago", passed, age-TTL)
				}
				if c.due(shown) {
					c, last = clock{ttl: TTL, margin: margin, wall: shown}, passed
					renewals++
				}
			}
			if renewals < 14 || renewals > 60 {
				t.Errorf("%d renewals in two weeks", renewals)
			}
		})
	}
}
