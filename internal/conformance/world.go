// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// world is a node with its pods, created for one check.
type world struct {
	ctx      context.Context
	dir      string // its files: namespaces, addresses, records
	host     *netns.NS
	kit      *kit
	sub      *subject
	prog     *program
	network  string
	version  string   // the version of the specification
	path     []string // CNI_PATH
	ipam     map[string]any
	rec      *recorder
	pods     []*pod
	cleanups []func() // in order
}

// pod is a container's namespace and its attachment.
type pod struct {
	n          int
	id, ifName string
	ns         *netns.NS
	prev       json.RawMessage // prevResult of ADD
	final      json.RawMessage // the result of ADD
}

// request is a call that can be modified before it is sent.
type request struct {
	verb string
	conf map[string]any
	env  map[string]string
}

// newPod creates a namespace and prepares it for the subject.
func (w *world) newPod() (*pod, error) {
	n := len(w.pods) + 1
	p := &pod{n: n, id: fmt.Sprintf("%s-pod%d", w.network, n), ifName: w.sub.ifName}
	ns, err := netns.New(filepath.Join(w.dir, "netns", p.id))
	if err != nil {
		return nil, err
	}
	p.ns = ns
	w.pods = append(w.pods, p)
	if w.sub.preparePod != nil {
		if err := w.sub.preparePod(w, p); err != nil {
			return nil, fmt.Errorf("prepare a pod for %s: %w", w.sub.typ, err)
		}
	}
	return p, nil
}

// data returns the directory that is configured for plugins' files.
func (w *world) data() string { return filepath.Join(w.dir, "data") }

// removeNetns deletes a pod's namespace, as a runtime may do before it calls DEL.
func (w *world) removeNetns(p *pod) error {
	_ = p.ns.Close()
	return netns.Remove(p.ns.Path())
}

// close removes the world.
func (w *world) close() {
	for _, end := range w.cleanups {
		end()
	}
	for _, p := range w.pods {
		_ = w.removeNetns(p)
	}
	w.rec.close()
	_ = w.host.Close()
	_ = netns.Remove(w.host.Path())
	_ = os.RemoveAll(w.dir)
}

// request returns the call that a runtime would make.
func (w *world) request(verb string, p *pod) request {
	r := request{verb: verb, conf: map[string]any{"cniVersion": w.version, "name": w.network, "type": w.sub.typ}}
	r.env = map[string]string{"CNI_PATH": joinPath(w.path)}
	if p == nil {
		maps.Copy(r.conf, w.sub.conf(w, &pod{ifName: w.sub.ifName}))
		return r
	}
	maps.Copy(r.conf, w.sub.conf(w, p))
	if verb == add && p.prev != nil {
		r.conf["prevResult"] = p.prev
	}
	if verb != add && p.final != nil {
		r.conf["prevResult"] = p.final
	}
	maps.Copy(r.env, map[string]string{"CNI_CONTAINERID": p.id, "CNI_NETNS": p.ns.Path(), "CNI_IFNAME": p.ifName})
	return r
}

// execute makes a call.
func (w *world) execute(r request) response {
	stdin, err := json.Marshal(r.conf)
	if err != nil {
		return response{verb: r.verb, err: err}
	}
	return w.executeRaw(r, stdin)
}

// executeRaw makes a call with any text on standard input.
func (w *world) executeRaw(r request, stdin []byte) response {
	env := make([]string, 0, len(r.env))
	for _, k := range slices.Sorted(maps.Keys(r.env)) {
		env = append(env, k+"="+r.env[k])
	}
	return w.prog.run(w.ctx, w.host, r.verb, env, stdin)
}

// add attaches a pod.
func (w *world) add(p *pod) error {
	a := w.execute(w.request(add, p))
	if !a.ok() {
		return fmt.Errorf("%s", a)
	}
	p.final = json.RawMessage(a.stdout)
	if !json.Valid(p.final) {
		return fmt.Errorf("ADD succeeds, but does not print JSON: %s", short(string(a.stdout)))
	}
	return nil
}

func (w *world) del(p *pod) error   { return asError(w.execute(w.request(del, p))) }
func (w *world) check(p *pod) error { return asError(w.execute(w.request(check, p))) }
func (w *world) status() error      { return asError(w.execute(w.request(status, nil))) }

// gc calls GC with the valid pods.
func (w *world) gc(valid ...*pod) error { return asError(w.execute(w.gcRequest(valid...))) }

func (w *world) gcRequest(valid ...*pod) request {
	r := w.request(gc, nil)
	list := []map[string]string{}
	for _, p := range valid {
		list = append(list, map[string]string{"containerID": p.id, "ifname": p.ifName})
	}
	r.conf["cni.dev/valid-attachments"] = list
	return r
}

// asError returns an error unless the response is a success.
func asError(a response) error {
	if a.ok() {
		return nil
	}
	return fmt.Errorf("%s", a)
}

// addPod creates a pod and attaches it.
func (w *world) addPod() (*pod, error) {
	p, err := w.newPod()
	if err != nil {
		return nil, err
	}
	return p, w.add(p)
}

// warmUp attaches and detaches a first pod, so that objects that pods share exist.
func (w *world) warmUp() error {
	p, err := w.addPod()
	if err != nil {
		return err
	}
	return w.del(p)
}

// state returns snapshots of the node, and of a pod if p is not nil.
func (w *world) state(p *pod) (host, inPod snapshot, err error) {
	if host, err = takeSnapshot(w.ctx, w.host); err != nil || p == nil {
		return host, nil, err
	}
	inPod, err = takeSnapshot(w.ctx, p.ns)
	return host, inPod, err
}

// cleanupTimeout limits how long to wait for asynchronous cleanup by the kernel.
const cleanupTimeout = 3 * time.Second

// leftovers returns what remains of a pod: changes of the namespaces since before, and files. It waits for asynchronous
// cleanup by the kernel. If podBefore is nil, the pod's namespace is not inspected.
func (w *world) leftovers(p *pod, hostBefore, podBefore snapshot, patience time.Duration) ([]string, error) {
	const pause = 20 * time.Millisecond
	end := time.Now().Add(patience)
	for {
		now, err := takeSnapshot(w.ctx, w.host)
		if err != nil {
			return nil, err
		}
		left := diff(hostBefore, now)
		if podBefore != nil {
			inPod, err := takeSnapshot(w.ctx, p.ns)
			if err != nil {
				return nil, err
			}
			for _, c := range diff(podBefore, inPod) {
				left = append(left, c+" (in the pod)")
			}
		}
		left = append(left, filesNaming(p.id, "/run", "/var/lib", w.data())...)
		if len(left) == 0 || time.Now().After(end) || w.ctx.Err() != nil {
			return left, nil
		}
		time.Sleep(pause)
	}
}
