// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// answerLook is how often the answer of another node is looked for that no watch told of: a refusal puts the block back
// as it was, and a watch that tells only the last of several changes then tells nothing.
const answerLook = 500 * time.Millisecond

// obtainer gets an address for an attachment: from memory, else by more blocks, by addresses of other nodes' blocks, or
// from who has it and is to give it up.
type obtainer struct {
	cfg       *Config
	kick      notify.Chan
	clock     *clock
	mem       *memory
	namesakes *namesakes
	journal   *journalFile
	registry  *registry
	requests  *requests
	claims    *addressClaims
	affinity  *affinity
}

// take gives an address, out of memory where that is possible.
func (ob *obtainer) take(ctx context.Context, w want, h holder) (netip.Addr, error) {
	if a, ok, err := ob.fromMemory(ctx, w, h, false); ok || err != nil {
		return a, err
	}
	return ob.insist(ctx, w, h, ob.cfg.Patience)
}

// insist gives an address that this node has not got yet, or one that rests.
func (ob *obtainer) insist(ctx context.Context, w want, h holder, patience time.Duration) (netip.Addr, error) {
	a, err := ob.obtain(ctx, w, h, patience)
	if errors.Is(err, store.ErrSilent) {
		// Better an address that rests than none.
		if rested, ok, tooErr := ob.fromMemory(ctx, w, h, true); ok || tooErr != nil {
			return rested, tooErr
		}
		err = silent(w, err)
	}
	return a, err
}

func silent(w want, err error) error {
	return model.Faultf(model.CodeTryAgain, "", "%s: no address of this node's own blocks is free; %w", w.field, err)
}

// fromMemory gives an address of this node's blocks. Nobody is asked.
func (ob *obtainer) fromMemory(ctx context.Context, w want, h holder, tired bool) (netip.Addr, bool, error) {
	a, ok, dirty, err := ob.mem.choose(w, h, tired)
	if dirty {
		ob.affinity.flush(ctx, []netip.Addr{a})
	}
	return a, ok, err
}

// obtain gives an address that this node has not got yet: it claims a block, takes what others ceded, and at last asks
// them.
func (ob *obtainer) obtain(ctx context.Context, w want, h holder, patience time.Duration) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Second) // a store that is silent is no reason to wait longer
	defer cancel()
	p, release, err := ob.affinity.alone(ctx, w)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { release() }()
	deadline := ob.cfg.After(patience)
	hungry := false
	defer func() {
		if hungry {
			ob.sated(p)
		}
	}()
	for {
		ob.mem.mu.Lock()
		changed := p.changed
		ob.mem.mu.Unlock()
		if a, ok, err := ob.fromMemory(ctx, w, h, false); ok || err != nil {
			return a, err
		}
		got, err := ob.more(ctx, p, w)
		if err != nil {
			return netip.Addr{}, err
		}
		if got {
			continue
		}
		// Nothing is free. Better an address that rests than none.
		if a, ok, err := ob.fromMemory(ctx, w, h, true); ok || err != nil {
			return a, err
		}
		if hungry, err = ob.hungers(ctx, p, w, hungry); err != nil {
			return netip.Addr{}, err
		}
		release() // others of this node need not wait for it
		release = func() {}
		late, err := ob.wait(ctx, w, changed, deadline)
		if err != nil {
			return netip.Addr{}, err
		}
		if late {
			return ob.atLast(ctx, p, w, h)
		}
		if _, release, err = ob.affinity.alone(ctx, w); err != nil {
			release = func() {}
			return netip.Addr{}, err
		}
	}
}

// wait waits until it is worth while to look again for an address, or it is late.
func (ob *obtainer) wait(
	ctx context.Context, w want, changed <-chan struct{}, deadline <-chan time.Time,
) (late bool, err error) {
	var look <-chan time.Time
	if w.addr.IsValid() { // one node has it and was asked; anything else comes with a change of the pool
		look = ob.cfg.After(answerLook)
	}
	select {
	case <-changed:
	case <-look:
	case <-deadline:
		return true, nil
	case <-ctx.Done():
		return false, model.Faultf(model.CodeTryAgain, "", "%s: waiting for an address: %w", w.field, ctx.Err())
	}
	return false, nil
}

// hungers notes that one more waits for any address of a pool, and asks the others for theirs, where that has not been
// done already. Where it reports true, it ends with sated, also after an error.
func (ob *obtainer) hungers(ctx context.Context, p *pool, w want, already bool) (bool, error) {
	if already || w.addr.IsValid() {
		return already, nil
	}
	ob.mem.mu.Lock()
	p.hungry++
	ob.mem.mu.Unlock()
	return true, ob.registry.say(ctx, p, true)
}

// fetch gives an address of a block that nobody had, or that was ceded to anybody; false when there is none to be had.
// Nobody is asked to give something back.
func (ob *obtainer) fetch(ctx context.Context, w want, h holder) (netip.Addr, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ob.cfg.Patience+time.Second)
	defer cancel()
	p, release, err := ob.affinity.alone(ctx, w)
	if err != nil {
		return netip.Addr{}, false, err
	}
	defer release()
	for {
		if a, ok, err := ob.fromMemory(ctx, w, h, false); ok || err != nil {
			return a, ok, err
		}
		if got, err := ob.more(ctx, p, w); !got || err != nil {
			return netip.Addr{}, false, err
		}
	}
}

// more gets this node a block for a want, or a single address; false when there is none to be had.
func (ob *obtainer) more(ctx context.Context, p *pool, w want) (bool, error) {
	if got, err := ob.affinity.takeBack(ctx, p, w); got || err != nil {
		return got, err
	}
	if w.addr.IsValid() {
		return ob.certain(ctx, p, w)
	}
	if got, err := ob.wholeBlock(ctx, p, w); got || err != nil {
		return got, err
	}
	if got, err := ob.takeCeded(ctx, p, w); got || err != nil {
		return got, err
	}
	return ob.takeOver(ctx, p, w)
}

// wholeBlock claims a block for a want; false when nobody has left one.
func (ob *obtainer) wholeBlock(ctx context.Context, p *pool, w want) (bool, error) {
	const tries = 32
	for try := range tries {
		cidr, ok, err := ob.mem.candidate(p, w, try > 1)
		if err != nil {
			return false, err
		}
		if ok {
			if got, err := ob.affinity.create(ctx, p, cidr); got || err != nil {
				return got, err
			}
		} else if try > 0 {
			return false, nil
		}
		if try == 0 { // what is known is not up to date, or it is not to be believed before somebody was asked
			if err := ob.registry.lookUnlessLive(ctx, p); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// takeOver takes a block of a node that does not exist any more. That a node does not answer is no reason: its pods may
// well be alive. Where this node itself has no object, missing objects say nothing; where the controller is apart, its
// word is needed, too.
func (ob *obtainer) takeOver(ctx context.Context, p *pool, w want) (bool, error) {
	ob.mem.mu.Lock()
	if most := p.spec.MaxBlocks; most > 0 && p.own() >= most {
		ob.mem.mu.Unlock()
		return false, nil
	}
	var blocks []model.AddressBlock
	for _, spec := range p.others {
		if p.useful(spec.CIDR, w) && (spec.Orphaned || !ob.cfg.Apart) {
			blocks = append(blocks, spec)
		}
	}
	ob.mem.mu.Unlock()
	for _, spec := range blocks {
		gone, err := ob.registry.isGone(ctx, spec)
		if err != nil {
			return false, err
		}
		if !gone {
			continue
		}
		o, now, err := ob.registry.read(ctx, p.name, spec.CIDR)
		if err != nil || now.Node != spec.Node || now.Claim != spec.Claim || ob.cfg.Apart && !now.Orphaned {
			return false, store.IgnoreConflict(err)
		}
		got, now, err := ob.registry.swap(ctx, o, now, func(s *model.AddressBlock, claim string) {
			s.Node, s.Claim = ob.cfg.Node, claim
		})
		if err != nil {
			return false, store.IgnoreConflict(err)
		}
		ob.cfg.Log.Warn("block of a node that is gone taken over", "pool", p.name, "block", spec.CIDR.String(),
			"node", spec.Node)
		if err := ob.affinity.promises(ctx, p, spec.CIDR); err != nil {
			return false, err
		}
		ob.affinity.own(p, got, now)
		return true, ob.journal.save()
	}
	return false, nil
}

// sated notes that a call does not wait any more. That the node has enough is told behind the answer.
func (ob *obtainer) sated(p *pool) {
	ob.mem.mu.Lock()
	defer ob.mem.mu.Unlock()
	p.hungry--
	ob.kick.Notify()
}

// takeAny gives an address of the first of several pools that has one.
func (ob *obtainer) takeAny(ctx context.Context, wants []want, h holder) (netip.Addr, error) {
	if len(wants) == 1 {
		return ob.take(ctx, wants[0], h)
	}
	for _, w := range wants {
		if a, ok, err := ob.fromMemory(ctx, w, h, false); ok || err != nil {
			return a, err
		}
	}
	for _, w := range wants {
		a, ok, err := ob.fetch(ctx, w, h)
		if errors.Is(err, store.ErrSilent) {
			return ob.tired(ctx, wants, h, err)
		}
		if ok || err != nil {
			return a, err
		}
	}
	var all []string
	for _, w := range wants {
		a, err := ob.insist(ctx, w, h, ob.cfg.Patience/2)
		var f *model.Fault
		if err == nil || !errors.As(err, &f) || f.Code != model.CodeExhausted {
			return a, err
		}
		all = append(all, f.Msg)
	}
	return netip.Addr{}, model.Faultf(model.CodeExhausted, "add a pool, or delete pods", "%s", strings.Join(all, "; "))
}

// tired gives an address that rests, when the store does not answer.
func (ob *obtainer) tired(ctx context.Context, wants []want, h holder, silence error) (netip.Addr, error) {
	for _, w := range wants {
		if a, ok, err := ob.fromMemory(ctx, w, h, true); ok || err != nil {
			return a, err
		}
	}
	return netip.Addr{}, silent(wants[0], silence)
}

// resolve fills in what a pool has, where only a pool is named: an address of each family.
func (ob *obtainer) resolve(ctx context.Context, s *settings) error {
	if s.pool == "" {
		return nil
	}
	ob.mem.mu.Lock()
	p := ob.mem.pool(s.pool)
	known := len(p.spec.Regions) > 0
	ob.mem.mu.Unlock()
	if !known {
		_, release, err := ob.affinity.alone(ctx, want{pool: s.pool, field: "ipam.pool"})
		if err != nil {
			return err
		}
		release()
	}
	ob.mem.mu.Lock()
	defer ob.mem.mu.Unlock()
	if p.closed() {
		return model.Faultf(model.CodeTryAgain, "choose another pool, or enable it",
			"ipam.pool: pool %q gives no addresses: it is disabled or about to go", s.pool)
	}
	for _, bits := range []int{32, 128} {
		w := want{pool: s.pool, field: "ipam.pool"}
		for _, r := range p.spec.Regions {
			if r.CIDR.Addr().BitLen() != bits {
				continue
			}
			if !w.network.IsValid() {
				w.network = r.CIDR
			}
			w.spans = append(w.spans, usable(r.CIDR))
		}
		if s.gateway.IsValid() {
			w.spans = without(w.spans, span{s.gateway, s.gateway})
		}
		if len(w.spans) > 0 {
			s.wants = append(s.wants, w)
		}
	}
	if len(s.wants) == 0 {
		return model.Faultf(model.CodeInvalidConf, "add one to its spec.regions", "ipam.pool: pool %q has no region", s.pool)
	}
	return nil
}

// exhausted says who has the addresses.
func (ob *obtainer) exhausted(p *pool, w want) error {
	ob.mem.mu.Lock()
	defer ob.mem.mu.Unlock()
	if w.addr.IsValid() {
		delete(p.asking, w.addr) // the next time it is asked anew
		r, _ := p.region(w.addr)
		with := p.others[netip.PrefixFrom(w.addr, r.BlockSize).Masked()]
		if b := p.blockOf(w.addr); b != nil {
			with.Node, _, _ = strings.Cut(b.spec.Ceded[w.addr], "/")
		}
		return model.Faultf(model.CodeTryAgain, "it is free when that node has given it back",
			"%s: address %s is with node %q, which does not answer", w.field, w.addr, with.Node)
	}
	nodes := map[string]bool{}
	for cidr, b := range p.others {
		for _, s := range w.spans {
			if s.overlaps(cidr) {
				nodes[b.Node] = true
			}
		}
	}
	if most := p.spec.MaxBlocks; most > 0 && p.own() >= most {
		return model.Faultf(model.CodeExhausted, "raise it, or delete pods of this node",
			"%s: no address is free in %s of pool %q: this node has %d blocks already, and may have no more (maxBlocksPerNode %d)", w.field, w.id(), p.name, p.own(), most)
	}
	here := 0
	for a := range p.held {
		if inSpans(w.spans, a) {
			here++
		}
	}
	return model.Faultf(model.CodeExhausted, "widen the range, or delete pods that use it",
		"%s: no address is free in %s of pool %q: %d of %d are held on this node, and %d other nodes have the rest",
		w.field, w.id(), p.name, here, count(w.spans), len(nodes))
}
