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

// world is a node with its pods, made for one check.
type world struct {
	ctx     context.Context
	dir     string // its own files: namespaces, addresses, records
	host    *netns.NS
	kit     *kit
	sub     *subject
	prog    *program
	network string
	version string   // the version of the specification that is spoken
	path    []string // CNI_PATH
	ipam    map[string]any
	rec     *recorder
	pods    []*pod
	ends    []func() // what stops what the world has started
}

// pod is a container's namespace and what is remembered of its attachment.
type pod struct {
	n          int
	id, ifName string
	ns         *netns.NS
	prev       json.RawMessage // what an ADD gets as prevResult
	final      json.RawMessage // what the ADD has answered
}

// request is one call, to be changed before it is made.
type request struct {
	verb string
	conf map[string]any
	env  map[string]string
}

// newPod makes a namespace, and in it what the subject needs.
func (w *world) newPod() (*pod, error) {
	n := len(w.pods) + 1
	p := &pod{n: n, id: fmt.Sprintf("%s-pod%d", w.network, n), ifName: w.sub.ifName}
	ns, err := netns.New(filepath.Join(w.dir, "netns", p.id))
	if err != nil {
		return nil, err
	}
	p.ns = ns
	w.pods = append(w.pods, p)
	if w.sub.furnish != nil {
		if err := w.sub.furnish(w, p); err != nil {
			return nil, fmt.Errorf("what %s works on: %w", w.sub.typ, err)
		}
	}
	return p, nil
}

// data is where plugins are told to keep their files.
func (w *world) data() string { return filepath.Join(w.dir, "data") }

// gone takes a pod's namespace away, as a runtime that is ahead of its plugins does.
func (w *world) gone(p *pod) error {
	_ = p.ns.Close()
	return netns.Remove(p.ns.Path())
}

// close takes the world down.
func (w *world) close() {
	for _, end := range w.ends {
		end()
	}
	for _, p := range w.pods {
		_ = w.gone(p)
	}
	w.rec.close()
	_ = w.host.Close()
	_ = netns.Remove(w.host.Path())
	_ = os.RemoveAll(w.dir)
}

// request is the call that a runtime would make.
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

// do makes a call.
func (w *world) do(r request) answer {
	stdin, err := json.Marshal(r.conf)
	if err != nil {
		return answer{verb: r.verb, err: err}
	}
	return w.raw(r, stdin)
}

// raw makes a call with any text on standard input.
func (w *world) raw(r request, stdin []byte) answer {
	env := make([]string, 0, len(r.env))
	for _, k := range slices.Sorted(maps.Keys(r.env)) {
		env = append(env, k+"="+r.env[k])
	}
	return w.prog.run(w.ctx, w.host, r.verb, env, stdin)
}

// add attaches a pod; the error says what went wrong.
func (w *world) add(p *pod) error {
	a := w.do(w.request(add, p))
	if !a.ok() {
		return fmt.Errorf("%s", a)
	}
	p.final = json.RawMessage(a.stdout)
	if !json.Valid(p.final) {
		return fmt.Errorf("ADD succeeds, and prints no JSON: %s", short(string(a.stdout)))
	}
	return nil
}

func (w *world) del(p *pod) error   { return wish(w.do(w.request(del, p))) }
func (w *world) check(p *pod) error { return wish(w.do(w.request(check, p))) }
func (w *world) status() error      { return wish(w.do(w.request(status, nil))) }

// gc keeps the valid ones.
func (w *world) gc(valid ...*pod) error { return wish(w.do(w.gcRequest(valid...))) }

func (w *world) gcRequest(valid ...*pod) request {
	r := w.request(gc, nil)
	list := []map[string]string{}
	for _, p := range valid {
		list = append(list, map[string]string{"containerID": p.id, "ifname": p.ifName})
	}
	r.conf["cni.dev/valid-attachments"] = list
	return r
}

// wish turns an answer into an error unless it is a success.
func wish(a answer) error {
	if a.ok() {
		return nil
	}
	return fmt.Errorf("%s", a)
}

// attached makes a pod and attaches it.
func (w *world) attached() (*pod, error) {
	p, err := w.newPod()
	if err != nil {
		return nil, err
	}
	return p, w.add(p)
}

// warm lets a first pod come and go, so that what all pods share is there.
func (w *world) warm() error {
	p, err := w.attached()
	if err != nil {
		return err
	}
	return w.del(p)
}

// state is the node's namespace, and a pod's where there is one.
func (w *world) state(p *pod) (host, inPod view, err error) {
	if host, err = look(w.ctx, w.host); err != nil || p == nil {
		return host, nil, err
	}
	inPod, err = look(w.ctx, p.ns)
	return host, inPod, err
}

// patience is how long the kernel's own clearing away is waited for.
const patience = 3 * time.Second

// traces is what is still there of a pod: in the namespaces, compared with before, and in files. The kernel takes some
// things away in its own time, which is waited for. A nil podBefore means that the pod's namespace is not looked at.
func (w *world) traces(p *pod, hostBefore, podBefore view, patience time.Duration) ([]string, error) {
	const pause = 20 * time.Millisecond
	end := time.Now().Add(patience)
	for {
		now, err := look(w.ctx, w.host)
		if err != nil {
			return nil, err
		}
		left := changes(hostBefore, now)
		if podBefore != nil {
			inPod, err := look(w.ctx, p.ns)
			if err != nil {
				return nil, err
			}
			for _, c := range changes(podBefore, inPod) {
				left = append(left, c+" (in the pod)")
			}
		}
		left = append(left, naming(p.id, "/run", "/var/lib", w.data())...)
		if len(left) == 0 || time.Now().After(end) || w.ctx.Err() != nil {
			return left, nil
		}
		time.Sleep(pause)
	}
}
