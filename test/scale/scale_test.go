// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestScale prints its measurements.
func TestScale(t *testing.T) {
	c := newCluster(t)
	c.BulkPut(c.createLocal)
	c.awaitServer(locals)
	c.start()
	c.attach()
	few := c.residentSet()
	c.stop()

	began := time.Now()
	c.BulkPut(c.createRemote)
	c.awaitServer(locals + c.pods)
	t.Logf("%d nodes, %d pods: in the API server after %s", c.nodes, c.pods, time.Since(began).Round(time.Second))
	kernel := newNFTMonitor(t, c.node)
	began = time.Now()
	c.start()
	last := number(c.pods - 100 + (100-c.pods%100)%100) // the last one that is a peer of all
	c.awaitKernel(last.addr())
	t.Logf("agent: all policies enforced %s after its start", time.Since(began).Round(10*time.Millisecond))
	kernel.drain()
	many := c.residentSet()
	t.Logf("memory of the agent: %.1f MiB with %d pods, %.1f MiB with %d: %d bytes a pod", mib(few), locals, mib(many),
		c.pods, (many-few)/c.pods)

	c.latency(kernel)
	c.churnPods()
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }

// residentSet returns the agent's resident set after a settle time.
func (c *cluster) residentSet() int {
	c.t.Helper()
	best := 0
	for range 3 {
		time.Sleep(c.rest())
		if now := resident(c.t, c.agent.Process.Pid); best == 0 || now < best {
			best = now
		}
	}
	return best
}

// resident returns a process's resident set in bytes.
func resident(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kib := 0
	for l := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(l, "VmRSS: %d kB", &kib); err == nil {
			return kib * 1024
		}
	}
	t.Fatalf("process %d has no VmRSS", pid)
	return 0
}

// rest returns the time until garbage is returned to the kernel.
func (c *cluster) rest() time.Duration {
	if c.pods > 1000 {
		return 10 * time.Second
	}
	return 50 * time.Millisecond
}

// latency measures the time until a published remote pod, a changed pod label, and a new block of a policy are in the
// kernel.
func (c *cluster) latency(kernel *nftMonitor) {
	var published, labeled, policy []time.Duration
	for i := range c.writes {
		n := number(c.pods + i*100) // a peer of all local pods
		name := fmt.Sprint("n", 1+i%c.nodes)
		object := pod(n.namespace(), n.name(), n.uid(), name, n.labels(), "")
		c.Do(http.MethodPost, "/api/v1/namespaces/"+n.namespace()+"/pods", object)
		uid := c.uid("/api/v1/namespaces/" + n.namespace() + "/pods/" + n.name())
		spec := c.published(1+i%c.nodes, n)["spec"]
		spec.(fields)["endpoints"].([]fields)[0]["uid"] = uid
		published = append(published, kernel.until(c.t, n.addr().AsSlice(), func() {
			c.Do(http.MethodPatch, "/apis/weft.dev/v1alpha1/nodeendpoints/"+name, fields{"spec": spec})
		}))
		m := number(i*100%c.pods + 1 + i*100/c.pods) // not a peer
		labeled = append(labeled, kernel.until(c.t, m.addr().AsSlice(), func() {
			c.Do(http.MethodPatch, "/api/v1/namespaces/"+m.namespace()+"/pods/"+m.name(), fields{
				"metadata": fields{"labels": fields{"tier": "front"}},
			})
		}))
		block := netip.AddrFrom4([4]byte{198, 51, byte(100 + i>>8), byte(i)})
		policy = append(policy, kernel.until(c.t, block.AsSlice(), func() {
			c.Do(http.MethodPatch, "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/policy-1", fields{
				"spec": fields{"ingress": []fields{{"from": []fields{{"ipBlock": fields{"cidr": block.String() + "/32"}}}}}},
			})
		}))
	}
	for _, m := range []struct {
		what string
		all  []time.Duration
	}{{"a pod is published", published}, {"a pod's label changes", labeled}, {"a policy changes", policy}} {
		slices.Sort(m.all)
		at := func(p int) time.Duration {
			return m.all[min(len(m.all)-1, len(m.all)*p/100)].Round(100 * time.Microsecond)
		}
		c.t.Logf("from the API write until enforcement, %s: p50 %s, p99 %s, max %s, n=%d", m.what, at(50), at(99),
			at(100), len(m.all))
	}
}

func (c *cluster) uid(path string) string {
	var o struct{ Metadata struct{ UID string } }
	c.get(path, &o)
	return o.Metadata.UID
}

// churnPods creates and deletes a thousand pods per minute, and measures the agent's CPU time.
func (c *cluster) churnPods() {
	before, began, done := c.cpu(), time.Now(), 0
	for next := began; time.Since(began) < c.churn; done++ {
		n := number(c.pods + (c.writes+done)*100 + done%100)
		name := fmt.Sprint("n", 1+done%c.nodes)
		path := "/api/v1/namespaces/" + n.namespace() + "/pods"
		c.Do(http.MethodPost, path, pod(n.namespace(), n.name(), n.uid(), name, n.labels(), ""))
		spec := c.published(1+done%c.nodes, n)["spec"]
		spec.(fields)["endpoints"].([]fields)[0]["uid"] = c.uid(path + "/" + n.name())
		c.Do(http.MethodPatch, "/apis/weft.dev/v1alpha1/nodeendpoints/"+name, fields{"spec": spec})
		c.Do(http.MethodDelete, path+"/"+n.name()+"?gracePeriodSeconds=0", nil)
		c.Do(http.MethodPatch, "/apis/weft.dev/v1alpha1/nodeendpoints/"+name, fields{
			"spec": c.published(1 + done%c.nodes)["spec"],
		})
		next = next.Add(time.Minute / 1000)
		time.Sleep(time.Until(next))
	}
	took := time.Since(began)
	c.t.Logf("%d pods created and deleted in %s: the agent used %s of CPU time, %.2f %% of one CPU, %s per pod", done,
		took.Round(time.Millisecond),
		(c.cpu() - before).Round(time.Millisecond), 100*(c.cpu()-before).Seconds()/took.Seconds(),
		((c.cpu() - before) / time.Duration(done)).Round(10*time.Microsecond))
}

// cpu returns the agent's user and system time.
func (c *cluster) cpu() time.Duration { return cpuTime(c.t, c.agent.Process.Pid) }

// cpuTime returns a process's user and system time.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))
	var user, system int
	if _, err := fmt.Sscan(f[12]+" "+f[13], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// nftMonitor receives each committed change of a namespace's nftables.
type nftMonitor struct{ fd int }

func newNFTMonitor(t *testing.T, ns *netns.NS) *nftMonitor {
	t.Helper()
	e := &nftMonitor{}
	err := ns.Do(func() (err error) {
		if e.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20) // best effort
		return unix.Bind(e.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	})
	if err != nil {
		nettest.SkipMissing(t, fmt.Sprintf("nftables monitoring is not permitted: %v", err))
	}
	t.Cleanup(func() { _ = unix.Close(e.fd) })
	return e
}

func (e *nftMonitor) drain() {
	for b := make([]byte, 1<<16); ; {
		if _, _, err := unix.Recvfrom(e.fd, b, unix.MSG_DONTWAIT); errors.Is(err, unix.EAGAIN) {
			return
		}
	}
}

// until calls write and waits until a change contains the bytes.
func (e *nftMonitor) until(t testing.TB, want []byte, write func()) time.Duration {
	t.Helper()
	e.drain()
	heard := make(chan time.Time, 1)
	go func() {
		defer close(heard)
		wait := unix.NsecToTimeval(int64(time.Minute))
		_ = unix.SetsockoptTimeval(e.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
		for b := make([]byte, 1<<16); ; {
			n, _, err := unix.Recvfrom(e.fd, b, 0)
			if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
				return
			}
			if err == nil && bytes.Contains(b[:n], want) {
				heard <- time.Now()
				return
			}
		}
	}()
	began := time.Now()
	write()
	at, ok := <-heard
	if !ok {
		t.Fatalf("%v is not in the kernel within a minute", want)
	}
	return at.Sub(began)
}
