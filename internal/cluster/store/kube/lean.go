// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Policies is the server as a place that tells of network policies and of everything that they can be about: all pods
// of the cluster among it. So only what policies go by is read of each object, and nothing of it is kept here: who
// follows it has it.
func (s *Store) Policies() Policies { return Policies{s} }

// Policies tells of policies.
type Policies struct{ s *Store }

// Watch tells what is there, and then what changes. A kind that the server does not have has no objects, and is
// followed when it comes. A deleted object is a name.
func (p Policies) Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error) {
	var shelfs []*shelf
	for _, kind := range kinds {
		sh := newShelf(kind)
		sh.lean, sh.marks = true, map[string]uint64{}
		if sh.archive = newArchive(p.s.cfg.Dir, p.s.cfg.Node, kind); sh.archive != nil && kind == store.NodeEndpoints() {
			sh.archive.late = map[string]archived{} // each is a whole node, and new with each of its pods
		}
		shelfs = append(shelfs, sh)
	}
	events := p.s.follow(ctx, reducePolicy, func() {}, shelfs...)
	if p.s.cfg.Dir == "" {
		return events, nil
	}
	out := make(chan store.Event)
	go func() {
		defer close(out)
		p.pass(ctx, events, out, shelfs)
	}()
	return out, nil
}

// archivePause gathers what is written to the archives, archivePods where all pods of a cluster are among it. An agent
// that is killed meanwhile, while the server is away, does not know these changes. What nodes say of their pods'
// interfaces is written less often: of the cluster's network the pods say it, too.
const archivePause, archivePods, archiveNodes = savePause, time.Second, 10 * time.Second

// pass hands events on, and writes the archives now and then.
func (p Policies) pass(ctx context.Context, in <-chan store.Event, out chan<- store.Event, shelfs []*shelf) {
	late := func(sh *shelf) bool { return sh.kind == store.NodeEndpoints() }
	all, soon := func(*shelf) bool { return true }, func(sh *shelf) bool { return !late(sh) }
	flush := func(which func(*shelf) bool) {
		p.flush(slices.DeleteFunc(slices.Clone(shelfs), func(sh *shelf) bool { return !which(sh) }))
	}
	defer flush(all)
	pause := archivePause
	if slices.ContainsFunc(shelfs, func(sh *shelf) bool { return sh.kind == store.Pods() }) {
		pause = archivePods
	}
	var due, dueLate <-chan time.Time
	for {
		select {
		case e, ok := <-in:
			if !ok {
				return
			}
			if e.Type == store.Synced {
				flush(all)
			}
			if due == nil {
				due = p.s.cfg.After(pause)
			}
			if dueLate == nil && slices.ContainsFunc(shelfs, late) {
				dueLate = p.s.cfg.After(archiveNodes)
			}
			select {
			case out <- e:
			case <-ctx.Done():
			}
		case <-due:
			due = nil
			flush(soon)
		case <-dueLate:
			dueLate = nil
			flush(late)
		}
	}
}

// flush writes archives.
func (p Policies) flush(shelfs []*shelf) {
	for _, sh := range shelfs {
		if err := sh.archive.flush(); err != nil {
			p.s.log.Warn("what policies go by is not remembered", "resource", sh.kind.Resource, "err", err)
		}
	}
}

// alone has what was recalled be everything, as long as the server does not say otherwise. While it may, who obeys
// policies waits for it: there may be a policy by now that nobody here has heard of.
func (s *shelf) alone() {
	if s.lean && s.restored {
		s.filled()
	}
}

// recall tells what the archive knows.
func (s *Store) recall(sh *shelf, tell func(store.Object)) {
	// An agent before may have kept nothing of interfaces, of which the pods say most.
	sh.restored = sh.kind == store.NodeEndpoints() && sh.lean && s.cfg.Dir != ""
	whole, err := sh.archive.replay(func(o store.Object) {
		sh.mu.Lock()
		sh.marks[markOf(o.Key)] = mark(o)
		sh.mu.Unlock()
		tell(o)
	})
	if err != nil {
		s.log.Warn("what policies went by is not known any more", "resource", sh.kind.Resource, "err", err)
		return
	}
	sh.restored = sh.restored || whole
}

// configHashOnly keeps of a pod's annotations by what a kubelet knows a static one.
func configHashOnly(in map[string]string) map[string]string {
	if hash, ok := in[configHash]; ok {
		return map[string]string{configHash: hash}
	}
	return nil
}

// reducePolicy keeps what policies go by. Policies themselves are read whole.
func reducePolicy(raw []byte) (store.Object, error) {
	var f fact
	if err := json.Unmarshal(raw, &f); err != nil {
		return store.Object{}, fmt.Errorf("%s %s of the API server: %w", f.Kind, f.Metadata.Name, err)
	}
	group, _, grouped := strings.Cut(f.APIVersion, "/")
	if grouped && group != "" {
		return reduceMeta(raw)
	}
	f.Metadata.Annotations = configHashOnly(f.Metadata.Annotations)
	f.Spec.Containers, f.Spec.InitContainers = withNames(f.Spec.Containers), withNames(f.Spec.InitContainers)
	f.Spec.PodCIDR, f.Spec.PodCIDRs = "", nil
	small, err := json.Marshal(f)
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(small)
}

// reduceMeta is an object without its status and what is written about who wrote it, so that a condition that somebody
// sets is no news.
func reduceMeta(raw []byte) (store.Object, error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return store.Object{}, err
	}
	delete(o, "status")
	var meta struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace,omitempty"`
		UID         string            `json:"uid,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	err := json.Unmarshal(o["metadata"], &meta)
	if err == nil {
		o["metadata"], err = json.Marshal(meta)
	}
	if err != nil {
		return store.Object{}, err
	}
	small, err := json.Marshal(o)
	if err != nil {
		return store.Object{}, err
	}
	return store.NewObject(small)
}

// mark is what is remembered of an object that was told.
func mark(o store.Object) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(o.Version))
	return h.Sum64()
}

func markOf(key store.Key) string { return key.Namespace + "/" + key.Name }

// note keeps an object, or its mark, and tells whether one of the name was there and whether this one is news. The lock
// is held.
func (s *shelf) note(o store.Object) (had, news bool) {
	if s.lean {
		was, had := s.marks[markOf(o.Key)]
		is := mark(o)
		s.marks[markOf(o.Key)] = is
		if news = !had || was != is; news {
			s.archive.add(archived{Name: markOf(o.Key), Object: o.Raw})
		}
		return had, news
	}
	was, had := s.objects[o.Key]
	if news = !had || was.Version != o.Version; news {
		s.objects[o.Key], s.dirty = o, true
	}
	return had, news
}

// forget takes an object away, and gives it as far as it is known. The lock is held.
func (s *shelf) forget(key store.Key) (was store.Object, had bool) {
	if s.lean {
		if _, had = s.marks[markOf(key)]; had {
			s.archive.add(archived{Name: markOf(key)})
		}
		delete(s.marks, markOf(key))
		return store.Object{Key: key}, had
	}
	was, had = s.objects[key]
	delete(s.objects, key)
	return was, had
}

// keys are the names of all objects.
func (s *shelf) keys() []store.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]store.Key, 0, len(s.objects)+len(s.marks))
	for key := range s.objects {
		out = append(out, key)
	}
	for name := range s.marks {
		namespace, name, _ := strings.Cut(name, "/")
		out = append(out, s.kind.Key(namespace, name))
	}
	return out
}
