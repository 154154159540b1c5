// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"
)

// handedClock is a clock that the test moves.
type handedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handedClock) pass(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

// TestTwoWeeksOfCooldown: pods come and go for two weeks, by a clock that the test moves. No address is allocated again
// before it has rested, and none twice at once, over restarts of the agent, each of which ends all rests.
func TestTwoWeeksOfCooldown(t *testing.T) {
	const rests, most = 10 * time.Minute, 40
	_, path := cluster(t, nil)
	clock := &handedClock{now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	n := join(t, path, "a", func(c *Config) { c.Cooldown, c.Now = rests, clock.Now })
	conf := rangeConf1("10.0.0.0/24")
	r := rand.New(rand.NewSource(7))
	released, live := map[string]time.Time{}, map[string]string{}
	end := clock.Now().Add(14 * 24 * time.Hour)
	given, again, restarts := 0, 0, 0
	for now := clock.Now(); now.Before(end); now = clock.pass(time.Duration(r.Intn(240)) * time.Second) {
		switch roll := r.Intn(100); {
		case roll == 0:
			n.start()
			clear(released)
			restarts++
		case roll < 50 && len(live) < most:
			given++
			id := fmt.Sprint("pod", given)
			addr := n.mustAdd(conf, id)
			if at, before := released[addr]; before {
				again++
				if rested := now.Sub(at); rested < rests {
					t.Fatalf("at %s %s is given again after %s, want %s", now, addr, rested, rests)
				}
			}
			for other, has := range live {
				if has == addr {
					t.Fatalf("%s and %s both have %s", id, other, addr)
				}
			}
			live[id] = addr
		default:
			for id, addr := range live { // any
				n.del(id)
				released[addr] = now
				delete(live, id)
				break
			}
		}
	}
	t.Logf("%d addresses given, %d of them again, %d restarts", given, again, restarts)
	if given < 1000 || again < given/4 || restarts == 0 {
		t.Errorf("%d addresses given, %d of them again, %d restarts: not what two weeks are", given, again, restarts)
	}
}
