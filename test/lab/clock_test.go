// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"golang.org/x/sys/unix"
)

// What the clock's jumps find in the lab.
const clockObjects = `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: pool}
spec:
  assignmentMode: Automatic
  regions: [{cidr: 10.42.0.0/24, blockSize: 28}]
  reserved: [{address: 10.42.0.9, for: default/open, by: whereabouts}]
---
apiVersion: weft.dev/v1alpha1
kind: AddressReservation
metadata: {name: printer}
spec: {addresses: [10.42.0.10], for: a printer}
---
apiVersion: weft.dev/v1alpha1
kind: AddressClaim
metadata: {name: fixed, namespace: default}
spec: {addresses: [10.42.0.77]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: default}
spec: {podSelector: {matchLabels: {app: closed}}, policyTypes: [Ingress]}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: leased, namespace: default}
spec: {config: '{"cniVersion": "1.0.0", "type": "bridge", "bridge": "dbr0", "ipam": {"type": "dhcp"}}'}
---
apiVersion: v1
kind: Pod
metadata: {name: open}
spec: {nodeName: node1, containers: [{name: main, command: [sleep, infinity]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: closed, labels: {app: closed}, annotations: {weft.dev/address-claim: fixed}}
spec: {nodeName: node2, containers: [{name: main, command: [sleep, infinity]}]}
`

const leasedPod = `apiVersion: v1
kind: Pod
metadata: {name: leased, annotations: {k8s.v1.cni.cncf.io/networks: leased}}
spec: {nodeName: node1, containers: [{name: main, command: [sleep, infinity]}]}
`

// wallClock sets the system's clock.
type wallClock struct {
	t     *testing.T
	begin time.Time
}

func newWallClock(t *testing.T) *wallClock {
	t.Helper()
	c := &wallClock{t: t, begin: time.Now()}
	t.Cleanup(func() { c.set(0) })
	return c
}

// set makes the clock wrong by an offset.
func (c *wallClock) set(offset time.Duration) {
	c.t.Helper()
	now := unix.NsecToTimespec(c.begin.UnixNano() + int64(time.Since(c.begin)+offset))
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		c.t.Fatal(err)
	}
}

// TestClockJump: the clock of a host with a lab is set forward by a day, and then to a day before. No pod, lease, claim
// or reservation that is in use is released, agents restart, policies are enforced, and new pods start and end.
func TestClockJump(t *testing.T) {
	nettest.NeedOwnClock(t)
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		nettest.SkipMissing(t, "no dnsmasq: apt-get install dnsmasq-base")
	}
	labDir := labDir(t)
	must(t, "lab", "up", "--nodes", "2", "--from", filepath.Dir(write(t, "all.yaml", clockObjects)), "--dir", labDir,
		"--addresses", "pools", "--cluster-cidr", "10.42.0.0/24")
	serveLeases(t, labDir)
	must(t, "lab", "apply", "--dir", labDir, "-f", write(t, "leased.yaml", leasedPod))
	clock := newWallClock(t)
	l := &clockLab{t: t, dir: labDir, before: addresses(t, labDir), audit: audit(t, labDir)}
	if !slices.ContainsFunc(l.before, func(s string) bool { return strings.HasPrefix(s, "closed eth0 10.42.0.77") }) ||
		!slices.ContainsFunc(l.before, func(s string) bool { return strings.HasPrefix(s, "leased net1 10.9.0.") }) {
		t.Fatalf("addresses before: %q", l.before)
	}
	clock.set(24 * time.Hour)
	l.check("a day ahead", "node1")
	clock.set(-24 * time.Hour)
	l.check("a day behind", "node2")
}

// serveLeases runs a DHCP server on a bridge of node1.
func serveLeases(t *testing.T, labDir string) {
	t.Helper()
	in := func(args ...string) []string {
		return append([]string{"lab", "exec", "--dir", labDir, "node1", "--"}, args...)
	}
	for _, args := range []string{
		"ip link add dbr0 type bridge", "ip addr add 10.9.0.1/24 dev dbr0", "ip link set dbr0 up",
	} {
		must(t, in(strings.Fields(args)...)...)
	}
	server := command(t, in("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=dbr0",
		"--bind-interfaces", "--no-ping", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"), "--pid-file=",
		"--user=root", "--dhcp-authoritative", "--dhcp-range=10.9.0.50,10.9.0.99,255.255.255.0,12h")...)
	var log strings.Builder
	server.Stdout, server.Stderr = &log, &log
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		_ = server.Wait()
		if t.Failed() {
			t.Logf("dnsmasq:\n%s", log.String())
		}
	})
}

// clockLab is a lab with its addresses, and what the audit finds in it.
type clockLab struct {
	t      *testing.T
	dir    string
	before []string
	audit  string
}

// audit returns the findings about the lab's addresses.
func audit(t *testing.T, labDir string) string {
	t.Helper()
	out := weft(t, "ipam", "check", "--store-dir", filepath.Join(labDir, "store")).stdout
	return out[:strings.LastIndex(strings.TrimSpace(out), "\n")+1] // without the number of blocks
}

// check restarts a node's agent, and expects that everything continues.
func (l *clockLab) check(when, restarted string) {
	l.t.Helper()
	same := func(step string) {
		l.t.Helper()
		if a := addresses(l.t, l.dir); !slices.Equal(a, l.before) {
			l.t.Errorf("%s, %s: addresses %q, before %q", when, step, a, l.before)
		}
	}
	same("at once")
	replaceAgent(l.t, l.dir, restarted, syscall.SIGKILL)
	name := "new-" + restarted
	must(l.t, "lab", "apply", "--dir", l.dir, "-f", write(l.t, "new.yaml", sleeper(name,
		"terminationGracePeriodSeconds: 0, nodeName: "+restarted+", ")))
	fresh := podsNamed(status(l.t, l.dir), name)[0].IPs
	for _, taken := range []string{"10.42.0.9", "10.42.0.10", "10.42.0.77"} {
		if len(fresh) != 1 || fresh[0].String() == taken {
			l.t.Errorf("%s: a new pod has %v", when, fresh)
		}
	}
	if r := settled(l.t, l.dir); r.Reached == 0 || r.Reached == r.Pairs { // the policy denies some
		l.t.Errorf("%s: reach: %d of %d: %+v", when, r.Reached, r.Pairs, r.Failed)
	}
	must(l.t, "lab", "delete", "--dir", l.dir, "pod/"+name)
	same("after a restart of the agent of " + restarted)
	if a := audit(l.t, l.dir); a != l.audit {
		l.t.Errorf("%s: the audit finds:\n%s, before\n%s", when, a, l.audit)
	}
}

// addresses returns the addresses of the pods that are there all the time: in the lab's status, and in their namespaces.
func addresses(t *testing.T, labDir string) (out []string) {
	t.Helper()
	for _, p := range status(t, labDir).Pods {
		out = append(out, fmt.Sprint(p.Name, " ", p.IPs))
		ns, err := netns.Open(p.Netns)
		if err != nil {
			t.Fatalf("pod %s: %v", p.Name, err)
		}
		err = ns.Do(func() error {
			links, err := net.Interfaces()
			for _, link := range links {
				addrs, e := link.Addrs()
				for _, a := range addrs {
					out = append(out, fmt.Sprint(p.Name, " ", link.Name, " ", a))
				}
				err = errors.Join(err, e)
			}
			return err
		})
		if err = errors.Join(err, ns.Close()); err != nil {
			t.Fatalf("pod %s: %v", p.Name, err)
		}
	}
	slices.Sort(out)
	return out
}
