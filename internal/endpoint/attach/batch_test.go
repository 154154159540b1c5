// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// other is onWire without a default route.
const other = `{"type":"macvlan","master":"ens5","ipam":{"type":"host-local","subnet":"10.7.0.0/24","dataDir":"DATA"}}`

// many are the jobs of a pod: a bridge and further macvlan networks on the uplink.
func (n *node) many(id string, ns *netns.NS, further int) []attach.Job {
	jobs := []attach.Job{n.job(n.list(bridge), id, ns)}
	for i := range further {
		conf := strings.Replace(n.list(other), `"name":"net"`, fmt.Sprintf(`"name":"wire%d"`, i+1), 1)
		job := n.job(conf, id, ns)
		job.Request.IfName = fmt.Sprintf("net%d", i+1)
		jobs = append(jobs, job)
	}
	return jobs
}

// The networks of a pod are applied in one pass, and each is checked and undone by itself.
func TestAddAll(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	passes, promises := 0, 0
	cfg := n.cfg
	cfg.Failpoint = func(name string) error {
		if name == "after apply" {
			passes++
		}
		if strings.HasPrefix(name, "after promise") {
			promises++
		}
		return nil
	}
	n.Attacher = attach.New(cfg)
	id, ns := n.pod()
	jobs := n.many(id, ns, 3)
	results, _, err := n.AddAll(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	if passes != 1 || promises != 1 {
		t.Errorf("%d passes and %d promises for four networks", passes, promises)
	}
	for i, job := range jobs {
		if r := results[i]; len(r.IPs) != 1 {
			t.Errorf("result %d: %+v", i, r)
		}
		job.Prev = &results[i]
		if err := n.Check(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	again, _, err := n.AddAll(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if d := diff(results[i], again[i]); d != "" {
			t.Errorf("the same ADD again: %s", d)
		}
	}
	if err := n.Del(t.Context(), jobs[2]); err != nil {
		t.Error(err)
	}
	n.gone(ns, "net2")
	for _, i := range []int{0, 1, 3} {
		if err := n.Check(t.Context(), jobs[i]); err != nil {
			t.Error(err)
		}
		if err := n.Del(t.Context(), jobs[i]); err != nil {
			t.Error(err)
		}
	}
	n.gone(ns, "eth0", "net1", "net3")
	n.unplug()
}

// A caller is killed while its ADD waits, and the DEL that follows is served first: nothing comes after it.
func TestAbandonedADD(t *testing.T) {
	n := newNode(t)
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	release, err := n.LockContainer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var killed atomic.Bool
	add := make(chan error, 1)
	abandoned := job
	abandoned.Abandoned = killed.Load
	go func() {
		_, _, err := n.AddAll(t.Context(), []attach.Job{abandoned})
		add <- err
	}()
	killed.Store(true)
	release()
	wantCode(t, "the ADD of a killed caller", <-add, model.CodeTryAgain, "the caller gave up")
	n.gone(ns, "eth0")
	if _, found, err := n.cfg.Records.Get(job.Request.Key()); found || err != nil {
		t.Errorf("a record of it: %t %v", found, err)
	}
	if _, _, err := n.AddAll(t.Context(), []attach.Job{job}); err != nil {
		t.Error(err)
	}
}

// Whatever fails, at any step, all of it is undone.
func TestAddAllFailsAnywhere(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	links := func() string { return nettest.Run(t, nil, "ip", "-br", "link") }
	settling := func() bool { l := links(); return strings.Count(l, "\n") > 2 || strings.Contains(l, "NO-CARRIER") }
	for end := time.Now().Add(30 * time.Second); settling() && time.Now().Before(end); {
		// the kernel still takes away what the test before had, and the uplink gets its carrier
		time.Sleep(10 * time.Millisecond)
	}
	before := links()
	errStep := errors.New("not today")
	for k := 0; ; k++ {
		at := ""
		cfg := n.cfg
		seen := 0
		cfg.Failpoint = func(name string) error {
			if seen++; seen > k && !strings.Contains(name, "undo") && !strings.Contains(name, "forget") &&
				!strings.Contains(name, "shared") {
				at = name
				return errStep
			}
			return nil
		}
		id, ns := n.pod()
		jobs := n.many(id, ns, 2)
		_, _, err := attach.New(cfg).AddAll(t.Context(), jobs)
		if err == nil {
			if k < 6 {
				t.Errorf("only %d steps", k)
			}
			for _, job := range jobs {
				if err := n.Del(t.Context(), job); err != nil {
					t.Error(err)
				}
			}
			break
		}
		if !errors.Is(err, errStep) {
			t.Errorf("step %d: %v", k, err)
		}
		n.drain()
		if list, err := n.ledger.List(); err != nil || len(list) > 0 {
			t.Errorf("%s: records left: %d %v", at, len(list), err)
		}
		n.gone(ns, "eth0", "net1", "net2")
		if after := links(); after != before {
			t.Errorf("%s: links\n%s, before\n%s", at, after, before)
		}
	}
	n.unplug()
}

// The error is that of the network that cannot be attached, and says so; the others are undone.
func TestAddAllOneIsWrong(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	id, ns := n.pod()
	nettest.Run(t, ns, "ip", "link", "add", "net2", "type", "veth", "peer", "name", "other")
	_, failed, err := n.AddAll(t.Context(), n.many(id, ns, 3))
	if failed != 2 {
		t.Errorf("network %d failed", failed)
	}
	wantCode(t, "AddAll", err, model.CodeExists, "net2")
	n.gone(ns, "eth0", "net1", "net3")
	n.unplug()
}

// foreign writes a plugin that appends its verb and interface to a file, and is refused the ADD of one interface; the
// file is what it allocates.
func (n *node) foreign(name, refused string) (calls string) {
	n.t.Helper()
	calls = n.data + "/" + name + ".all"
	n.plugin(name, `echo "$CNI_COMMAND $CNI_IFNAME" >> `+calls+`
[ "$CNI_COMMAND" = ADD ] || exit 0
[ "$CNI_IFNAME" = "`+refused+`" ] && { echo '{"code":101,"msg":"no room"}'; exit 1; }
echo '{"cniVersion":"1.1.0"}'`)
	return calls
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(b)), "\n"), ", ")
}

// Networks before a failing one are undone in reverse, also after the caller's deadline; the failing plugin's DEL runs
// too.
func TestAddAllUndoesBackwards(t *testing.T) {
	n := newNode(t)
	calls := n.foreign("theirs", "net2")
	id, ns := n.pod()
	var jobs []attach.Job
	for i := range 4 {
		job := n.job(strings.Replace(n.list(`{"type":"theirs"}`), `"name":"net"`, fmt.Sprintf(`"name":"wire%d"`, i), 1), id,
			ns)
		job.Request.IfName = fmt.Sprintf("net%d", i)
		jobs = append(jobs, job)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := n.cfg
	cfg.Failpoint = func(name string) error {
		if strings.HasPrefix(name, "before undo") {
			cancel()
		}
		return nil
	}
	_, failed, err := attach.New(cfg).AddAll(ctx, jobs)
	wantCode(t, "AddAll", err, 101, "no room")
	if failed != 2 {
		t.Errorf("network %d failed", failed)
	}
	if got, want := read(t, calls), "ADD net0, ADD net1, ADD net2, DEL net2, DEL net1, DEL net0"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	if list, err := n.ledger.List(); err != nil || len(list) > 0 {
		t.Errorf("records left: %d %v", len(list), err)
	}
}

// When networks that were to be attached at once are attached one by one, those before them stay as they are.
func TestAddAllKeepsWhatStood(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	calls := n.foreign("theirs", "")
	id, ns := n.pod()
	first := n.job(strings.Replace(n.list(`{"type":"theirs"}`), `"name":"net"`, `"name":"theirs"`, 1), id, ns)
	first.Request.IfName = "eth1"
	jobs := append([]attach.Job{first}, n.many(id, ns, 2)...)
	once := true
	cfg := n.cfg
	cfg.Failpoint = func(name string) error {
		if name == "after apply" && once {
			once = false
			return errors.New("not at once")
		}
		return nil
	}
	n.Attacher = attach.New(cfg)
	if _, _, err := n.AddAll(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	if got := read(t, calls); got != "ADD eth1" {
		t.Errorf("calls of the network that stood: %s", got)
	}
	for _, err := range n.DelAll(t.Context(), jobs) {
		if err != nil {
			t.Error(err)
		}
	}
	n.drain()
	n.gone(ns, "eth0", "net1", "net2")
	n.unplug()
}

// Pods that name the same networks in another order do not wait for each other forever, nor does one that names a
// network twice for itself.
func TestAddAllInAnyOrder(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var calls errgroup.Group
	var mu sync.Mutex
	given := map[string]string{}
	for i := range 12 {
		id, ns := n.pod()
		jobs := n.many(id, ns, 3)
		switch i % 3 {
		case 1:
			slices.Reverse(jobs[1:])
		case 2:
			jobs[3].Network, jobs[3].Request.Network = jobs[1].Network, jobs[1].Request.Network
		}
		calls.Go(func() error {
			results, _, err := n.AddAll(ctx, jobs)
			mu.Lock()
			defer mu.Unlock()
			for i, r := range results {
				at := jobs[i].Request.Network + " " + r.IPs[0].Address.String()
				if other := given[at]; other != "" {
					err = errors.Join(err, fmt.Errorf("%s was given to %s and %s", at, other, id))
				}
				given[at] = id
			}
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
	if len(given) != 48 {
		t.Errorf("%d addresses for 48 networks", len(given))
	}
}

// ordered notes which networks addresses were chosen of.
type ordered struct {
	ipam.Allocator
	networks []string
}

func (o *ordered) Capabilities() ipam.Capabilities { return ipam.Capabilities{Reserve: o} }

func (o *ordered) Reserve(ctx context.Context, ask ipam.Request) (ipam.Reservation, error) {
	o.networks = append(o.networks, ask.Network)
	return o.Allocator.Capabilities().Reserve.Reserve(ctx, ask)
}

// Whatever order a pod names its networks in, their directories are locked in one order: else two pods could wait for
// each other.
func TestAddAllLocksInOrder(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	cfg := n.cfg
	cfg.Allocators = maps.Clone(cfg.Allocators)
	o := &ordered{Allocator: cfg.Allocators["host-local"]}
	cfg.Allocators["host-local"] = o
	n.Attacher = attach.New(cfg)
	id, ns := n.pod()
	jobs := n.many(id, ns, 3)
	slices.Reverse(jobs[1:])
	if _, _, err := n.AddAll(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	if len(o.networks) != 4 || !slices.IsSorted(o.networks) {
		t.Errorf("locked %v", o.networks)
	}
}

// BenchmarkNetworks is the ADD of a pod with 1, 3 and 8 additional macvlan networks.
func BenchmarkNetworks(b *testing.B) {
	for _, further := range []int{1, 3, 8} {
		b.Run(fmt.Sprint(further), func(b *testing.B) {
			n := newNode(b)
			n.uplink()
			var add time.Duration
			for i := 0; b.Loop(); i++ {
				path := b.TempDir() + "/ns"
				ns, err := netns.New(path)
				if err != nil {
					b.Fatal(err)
				}
				jobs := n.many(fmt.Sprintf("bench%d", i), ns, further)
				start := time.Now()
				if _, _, err := n.AddAll(b.Context(), jobs); err != nil {
					b.Fatal(err)
				}
				add += time.Since(start)
				for _, job := range jobs {
					if err := n.Del(b.Context(), job); err != nil {
						b.Fatal(err)
					}
				}
				if err := errors.Join(ns.Close(), netns.Remove(path)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(add.Microseconds())/float64(b.N), "µs/ADD")
			n.unplug()
		})
	}
}

// If finished networks are undone because a later one fails, and that undo fails halfway, they are no longer done: they
// are not repaired, and the next ADD undoes the rest.
func TestAddAllUndoneIsNotDone(t *testing.T) {
	n := newNode(t)
	n.foreign("theirs", "net1")
	id, ns := n.pod()
	var jobs []attach.Job
	for i := range 2 {
		job := n.job(strings.Replace(n.list(`{"type":"theirs"}`), `"name":"net"`, fmt.Sprintf(`"name":"wire%d"`, i), 1), id,
			ns)
		job.Request.IfName = fmt.Sprintf("net%d", i)
		jobs = append(jobs, job)
	}
	cfg := n.cfg
	cfg.Failpoint = func(name string) error {
		if strings.HasPrefix(name, "before undo") {
			return errors.New("the undo ends here")
		}
		return nil
	}
	if _, _, err := attach.New(cfg).AddAll(t.Context(), jobs); err == nil {
		t.Fatal("the second network has not failed")
	}
	list, err := n.ledger.List()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d records and %v: the undo was to be broken off", len(list), err)
	}
	for _, r := range list {
		if r.Stage == attach.Done {
			t.Errorf("%s is %s", r.Key(), r.Stage)
		}
	}
}
