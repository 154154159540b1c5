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

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Policies returns a watch of network policies and of the objects that they select, among them all pods of the cluster.
// So only the fields that policies use are decoded, and no objects are cached here: the consumer has them.
func (s *Store) Policies() Policies { return Policies{s} }

// Policies watches network policies and the objects that they select.
type Policies struct{ s *Store }

// Watch sends all objects, and then changes. A kind that the server does not have has no objects, and is watched once
// its CRD is installed. Of a deleted object only the key is sent.
func (p Policies) Watch(ctx context.Context, kinds ...store.Kind) (<-chan store.Event, error) {
	var caches []*objectCache
	for _, kind := range kinds {
		sh := newObjectCache(kind)
		sh.hashesOnly, sh.hashes = true, map[string]uint64{}
		if sh.archive = p.archive(kind); sh.archive != nil && kind == store.NodeEndpoints() {
			sh.archive.coalesced = map[string]archiveLine{} // each is a whole node, and changes with each of its pods
		}
		caches = append(caches, sh)
	}
	events := p.s.follow(ctx, reducePolicy, func() {}, caches...)
	if p.s.cfg.Dir == "" {
		return events, nil
	}
	out := make(chan store.Event)
	go func() {
		defer close(out)
		p.pass(ctx, events, out, caches)
	}()
	return out, nil
}

// archive returns the archive of a kind; nil without a state directory.
func (p Policies) archive(kind store.Kind) *archive {
	return newArchive(p.s.cfg.Dir, p.s.cfg.Node, "policy-"+qualified(kind))
}

// Has reports whether the server has the kind. While it cannot be asked, it has what it had when an agent last watched
// it, or had asked; the error then is nil.
func (p Policies) Has(ctx context.Context, kind store.Kind) (bool, error) {
	_, err := do(ctx, requestTimeout, p.s.clients.work.Get().AbsPath(path(kind, "", "")).Param("limit", "1"))
	a := p.archive(kind)
	switch {
	case err == nil:
		a.noteAbsent(false, p.s.log)
		return true, nil
	case a.exists():
		return true, nil // the watch finds out whether the server really has lost it
	case apierrors.IsNotFound(err):
		a.noteAbsent(true, p.s.log)
		return false, nil
	case a.absent():
		return false, nil
	}
	return false, fmt.Errorf("%s: %w", qualified(kind), err)
}

// archivePause coalesces writes to the archives, archivePods if all pods of a cluster are included. An agent that is
// killed meanwhile, while the server is unavailable, loses these changes. NodeEndpoints are written less often: for the
// default network their addresses are in the pods' status, too.
const archivePause, archivePods, archiveNodes = savePause, time.Second, 10 * time.Second

// pass forwards events, and writes the archives periodically.
func (p Policies) pass(ctx context.Context, in <-chan store.Event, out chan<- store.Event, caches []*objectCache) {
	late := func(sh *objectCache) bool { return sh.kind == store.NodeEndpoints() }
	all, soon := func(*objectCache) bool { return true }, func(sh *objectCache) bool { return !late(sh) }
	flush := func(which func(*objectCache) bool) {
		p.flush(slices.DeleteFunc(slices.Clone(caches), func(sh *objectCache) bool { return !which(sh) }))
	}
	defer flush(all)
	pause := archivePause
	if slices.ContainsFunc(caches, func(sh *objectCache) bool { return sh.kind == store.Pods() }) {
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
			if dueLate == nil && slices.ContainsFunc(caches, late) {
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
func (p Policies) flush(caches []*objectCache) {
	for _, sh := range caches {
		if err := sh.archive.flush(); err != nil {
			p.s.log.Warn("archive of policy objects cannot be written", "resource", sh.kind.Resource, "err", err)
		}
	}
}

// useRestored reports the restored objects as complete when the server cannot be reached. Until a request has failed,
// enforcement waits for the server, because there may be new policies.
func (s *objectCache) useRestored() {
	if s.hashesOnly && s.restored {
		s.synced()
	}
}

// restoreArchive sends the objects of the archive.
func (s *Store) restoreArchive(sh *objectCache, send func(store.Object)) {
	// An earlier agent may have no archive of NodeEndpoints, of which the pods' status has the most.
	sh.restored = sh.kind == store.NodeEndpoints() && sh.hashesOnly && s.cfg.Dir != ""
	keep := func(o store.Object) {
		sh.mu.Lock()
		sh.hashes[hashKey(o.Key)] = versionHash(o)
		sh.mu.Unlock()
		send(o)
	}
	whole, err := sh.archive.replay(keep)
	if err != nil {
		s.log.Warn("archive of objects cannot be read", "resource", sh.kind.Resource, "err", err)
		return
	}
	if sh.early && !whole { // an earlier version wrote a snapshot
		whole = s.readSnapshot(sh.kind, func(o store.Object) {
			keep(o)
			sh.archive.add(archiveLine{Name: hashKey(o.Key), Object: o.Raw})
		})
		if whole {
			sh.archive.add(archiveLine{Whole: true})
			sh.outdated.Store(true)
		}
	}
	sh.restored = sh.restored || whole
}

// configHashOnly keeps only the annotation that identifies a static pod for the kubelet.
func configHashOnly(in map[string]string) map[string]string {
	if hash, ok := in[configHash]; ok {
		return map[string]string{configHash: hash}
	}
	return nil
}

// reducePolicy keeps the fields that policies use. Policies themselves are kept whole.
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

// reduceMeta removes an object's status and most of its metadata, so that a changed condition is no change.
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
		Labels      map[string]string `json:"labels,omitempty"` // Calico's policies select network sets by them
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

// versionHash returns a hash of a sent object's version.
func versionHash(o store.Object) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(o.Version))
	return h.Sum64()
}

func hashKey(key store.Key) string { return key.Namespace + "/" + key.Name }

// storeLocked stores an object, or its hash, and reports whether the key existed and whether the object has changed.
func (s *objectCache) storeLocked(o store.Object) (had, changed bool) {
	if s.hashesOnly {
		was, had := s.hashes[hashKey(o.Key)]
		is := versionHash(o)
		s.hashes[hashKey(o.Key)] = is
		if changed = !had || was != is; changed {
			s.archive.add(archiveLine{Name: hashKey(o.Key), Object: o.Raw})
		}
		return had, changed
	}
	was, had := s.objects[o.Key]
	if changed = !had || was.Version != o.Version; changed {
		s.objects[o.Key], s.dirty = o, true
	}
	return had, changed
}

// deleteLocked deletes an object, and returns what is known of it.
func (s *objectCache) deleteLocked(key store.Key) (was store.Object, had bool) {
	if s.hashesOnly {
		if _, had = s.hashes[hashKey(key)]; had {
			s.archive.add(archiveLine{Name: hashKey(key)})
		}
		delete(s.hashes, hashKey(key))
		return store.Object{Key: key}, had
	}
	was, had = s.objects[key]
	delete(s.objects, key)
	return was, had
}

// count returns the number of objects.
func (s *objectCache) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects) + len(s.hashes)
}

// keys returns the keys of all objects.
func (s *objectCache) keys() []store.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]store.Key, 0, len(s.objects)+len(s.hashes))
	for key := range s.objects {
		out = append(out, key)
	}
	for name := range s.hashes {
		namespace, name, _ := strings.Cut(name, "/")
		out = append(out, s.kind.Key(namespace, name))
	}
	return out
}
