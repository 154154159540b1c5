// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

const (
	// retryTime is how long a runtime may retry an ADD that gets CNI's error 11. The kubelet does so for ever.
	retryTime  = time.Minute
	retryPause = 100 * time.Millisecond
	tryAgain   = 11
)

// runtime is a node's container runtime: it attaches a pod, lets it connect to a pod of the other node, and detaches it,
// over and over.
type runtime struct {
	node  string
	ns    *netns.NS // the node's
	conf  []byte    // of the network
	bin   string
	peer  netip.AddrPort
	dir   string
	owner *addresses

	shim    atomic.Pointer[string] // the program weft-cni
	began   atomic.Uint64          // pods
	done    atomic.Uint64          // pods
	retries atomic.Uint64          // ADDs that got error 11

	mu      sync.Mutex
	failed  []string
	results map[string][]byte // of ADDs, by container
	stop    func()
}

// addresses are those of all pods, to find one that was allocated twice.
type addresses struct {
	mu sync.Mutex
	of map[netip.Addr]string
}

// take records a pod's addresses. It is an error if another pod has one.
func (a *addresses) take(pod string, all []netip.Addr) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, addr := range all {
		if o := a.of[addr]; o != "" && o != pod {
			err = errors.Join(err, fmt.Errorf("%s is allocated to %s and to %s", addr, o, pod))
		}
		a.of[addr] = pod
	}
	return err
}

func (a *addresses) release(pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr, o := range a.of {
		if o == pod {
			delete(a.of, addr)
		}
	}
}

// start runs the loop until stop.
func (r *runtime) start(t *testing.T) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
			}
			r.began.Add(1)
			if err := r.pod(fmt.Sprintf("%s-loop%d", r.node, n)); err != nil {
				r.mu.Lock()
				r.failed = append(r.failed, err.Error())
				r.mu.Unlock()
			}
			r.done.Add(1)
		}
	})
	r.stop = sync.OnceFunc(func() {
		close(end)
		wg.Wait()
	})
	t.Cleanup(r.stop)
}

// failures returns the errors since the last call.
func (r *runtime) failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.failed
	r.failed = nil
	return out
}

// pod is the life of one pod.
func (r *runtime) pod(id string) (err error) {
	path := filepath.Join(r.dir, id)
	ns, err := netns.New(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close(), netns.Remove(path)) }()
	addrs, err := r.add(id, path)
	if err == nil {
		err = r.owner.take(id, addrs)
	}
	if err == nil {
		conn, dialErr := connect(ns, r.peer)
		if err = dialErr; err != nil {
			err = fmt.Errorf("%s: pod of %v: %w", id, addrs, err)
		} else {
			_ = conn.Close()
		}
	}
	// Released before: from the DEL on, the agent may allocate them again.
	r.owner.release(id)
	if _, out, delErr := r.call("DEL", id, path); delErr != nil {
		err = errors.Join(err, fmt.Errorf("DEL of %s: %w: %s", id, delErr, out))
	}
	return err
}

// across attaches a pod, has the step taken, and lets the program after it CHECK and detach the pod: it reads what the
// one before has recorded.
func (r *runtime) across(id string, step func()) (err error) {
	path := filepath.Join(r.dir, id)
	ns, err := netns.New(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close(), netns.Remove(path)) }()
	addrs, err := r.add(id, path)
	if err == nil {
		err = r.owner.take(id, addrs)
	}
	step()
	if err == nil {
		if _, out, checkErr := r.retry("CHECK", id, path); checkErr != nil {
			err = fmt.Errorf("CHECK of %s: %w: %s", id, checkErr, out)
		}
	}
	if err == nil {
		conn, dialErr := connect(ns, r.peer)
		if err = dialErr; err == nil {
			_ = conn.Close()
		}
	}
	r.owner.release(id)
	if _, out, delErr := r.call("DEL", id, path); delErr != nil {
		err = errors.Join(err, fmt.Errorf("DEL of %s: %w: %s", id, delErr, out))
	}
	return err
}

// retry repeats a call while the agent asks for it.
func (r *runtime) retry(verb, id, path string) (code int, out []byte, err error) {
	for until := time.Now().Add(retryTime); ; time.Sleep(retryPause) {
		code, out, err = r.call(verb, id, path)
		if err == nil || code != tryAgain || time.Now().After(until) {
			return code, out, err
		}
	}
}

// add attaches a pod and retries as a runtime does.
func (r *runtime) add(id, path string) ([]netip.Addr, error) {
	for until := time.Now().Add(retryTime); ; time.Sleep(retryPause) {
		code, out, err := r.call("ADD", id, path)
		if err == nil {
			var result struct {
				IPs []struct{ Address netip.Prefix }
			}
			if err := json.Unmarshal(out, &result); err != nil {
				return nil, fmt.Errorf("ADD of %s: %w: %s", id, err, out)
			}
			var addrs []netip.Addr
			for _, ip := range result.IPs {
				addrs = append(addrs, ip.Address.Addr())
			}
			if len(addrs) == 0 {
				return nil, fmt.Errorf("ADD of %s: no address: %s", id, out)
			}
			return addrs, nil
		}
		if code != tryAgain || time.Now().After(until) {
			return nil, fmt.Errorf("ADD of %s: %w: %s", id, err, out)
		}
		r.retries.Add(1)
	}
}

// call executes the plugin. It returns CNI's error code, and stdout.
func (r *runtime) call(verb, id, path string) (code int, out []byte, err error) {
	cmd := exec.Command(*r.shim.Load())
	conf, err := r.confFor(verb, id)
	if err != nil {
		return 0, nil, err
	}
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id, "CNI_NETNS=" + path, "CNI_IFNAME=eth0", "CNI_PATH=" + r.bin,
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(conf), &stdout, &stderr
	if err = r.ns.Do(cmd.Start); err != nil {
		return 0, nil, err
	}
	err = cmd.Wait()
	if err == nil && verb == "ADD" {
		r.mu.Lock()
		r.results[id] = stdout.Bytes()
		r.mu.Unlock()
	}
	var failure struct{ Code int }
	_ = json.Unmarshal(stdout.Bytes(), &failure)
	return failure.Code, append(stdout.Bytes(), stderr.Bytes()...), err
}

// confFor returns the configuration of a call, for CHECK and DEL with the result of the ADD, as a runtime adds it.
func (r *runtime) confFor(verb, id string) ([]byte, error) {
	r.mu.Lock()
	result := r.results[id]
	if verb == "DEL" {
		delete(r.results, id)
	}
	r.mu.Unlock()
	if verb == "ADD" || result == nil {
		return r.conf, nil
	}
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(r.conf, &conf); err != nil {
		return nil, err
	}
	conf["prevResult"] = result
	return json.Marshal(conf)
}

// pluginConf returns the configuration that a runtime passes to the only plugin of a list.
func pluginConf(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list struct {
		CNIVersion string
		Name       string
		Plugins    []map[string]any
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	if len(list.Plugins) != 1 {
		return nil, fmt.Errorf("%s: %d plugins, want 1", file, len(list.Plugins))
	}
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = list.CNIVersion, list.Name
	return json.Marshal(conf)
}
