// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/serviceips"
	"github.com/weft-net/weft/internal/model"
)

// The reasons of the events about Services.
const (
	eventServiceIPs   = "LoadBalancerIPsAssigned"
	eventNoServiceIPs = "LoadBalancerIPsNotAssigned"
)

// watchServices watches what the addresses of Services depend on, until ctx ends.
func (c *Controller) watchServices(ctx context.Context) {
	for logged := false; ctx.Err() == nil; logged = true {
		events, err := c.cfg.Objects.Watch(ctx, store.Services(), store.AddressPools())
		if err == nil {
			for ev := range events {
				switch {
				case ev.Type == store.Faulty:
				case ev.Type == store.Synced, ev.Object.Key.Of(store.AddressPools()), serviceips.Concerns(ev.Object):
					c.servicesChanged()
				}
			}
		} else if !logged {
			c.cfg.Log.Error("Services cannot be watched: they get no addresses; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-c.cfg.After(watchRetry):
		}
	}
}

func (c *Controller) servicesChanged() {
	c.mu.Lock()
	c.servicesDue = true
	c.mu.Unlock()
	c.requested.Notify()
}

// assignServices assigns Services of type LoadBalancer addresses of the pools for Services.
func (c *Controller) assignServices(ctx context.Context, followCalico bool) error {
	c.mu.Lock()
	due := c.servicesDue || !c.cfg.Separate
	c.servicesDue = false
	c.mu.Unlock()
	if !due {
		return nil
	}
	err := c.assignServicesNow(ctx, followCalico)
	if err != nil {
		c.mu.Lock()
		c.servicesDue = true
		c.mu.Unlock()
	}
	return err
}

func (c *Controller) assignServicesNow(ctx context.Context, followCalico bool) error {
	all, err := list(ctx, c.cfg.Objects, store.AddressPools())
	if err != nil {
		return err
	}
	var pools []model.AddressPool
	for _, o := range all {
		if p, err := o.AddressPool(); err == nil { // an invalid one has the condition
			pools = append(pools, p)
		}
	}
	services, objects, err := c.readServices(ctx, followCalico)
	if err != nil {
		return err
	}
	var errs []error
	for name, r := range serviceips.Assign(pools, services, c.cooldown.Update(pools, services, c.cfg.Now())) {
		errs = append(errs, c.writeService(ctx, objects[name], r))
	}
	return errors.Join(errs...)
}

// readServices returns the Services that concern the assignment, and their objects by name.
func (c *Controller) readServices(
	ctx context.Context, followCalico bool,
) (out []serviceips.Service, objects map[string]store.Object, err error) {
	objects = map[string]store.Object{}
	err = store.Each(ctx, c.cfg.Objects, store.Services(), func(o store.Object) {
		if !serviceips.Concerns(o) {
			return
		}
		s := serviceips.Read(o, c.cfg.AssignServiceIPs, followCalico)
		out = append(out, s)
		objects[s.Name] = o
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, nil, fmt.Errorf("list of services: %w", err)
	}
	return out, objects, nil
}

// servicesInPools counts the addresses of each pool that Services have.
func servicesInPools(ctx context.Context, objects store.Objects, pools []model.AddressPool) (map[string]int, error) {
	services, err := serviceips.List(ctx, objects, pools)
	return serviceips.InUse(pools, services), err
}

// writeService writes the result into the Service's status, by one write: the addresses and the condition. Of a
// concurrent change the next pass takes care.
func (c *Controller) writeService(ctx context.Context, o store.Object, r serviceips.Result) error {
	have, marked := o.Conditions()[serviceips.ConditionIPs]
	next, err := o.Edited(ingressEdit(r.Addrs))
	if err != nil {
		return err
	}
	condition := model.Condition{
		Type: serviceips.ConditionIPs, True: r.Reason == serviceips.Assigned, Reason: r.Reason, Message: shortened(r.Message),
	}
	switch {
	case r.Reason == "":
		next, err = next.Edited(withoutCondition(serviceips.ConditionIPs))
	case !marked || have != condition:
		next, err = next.Edited(store.WithCondition(condition, c.cfg.Now()))
	}
	if err != nil {
		return err
	}
	if same, err := o.Edited(func(map[string]any) error { return nil }); err != nil || bytes.Equal(same.Raw, next.Raw) {
		return err
	}
	got, err := c.cfg.Objects.CompareAndSwapStatus(ctx, store.Services(), o.Version, next)
	switch {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		c.servicesChanged()
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", o.Key, err)
	}
	c.cfg.Log.Info("addresses of a Service", "service", o.Key.Namespace+"/"+o.Key.Name, "addresses", r.Addrs, "reason", r.Reason)
	if c.cfg.Events == nil || r.Reason == "" || marked && have == condition {
		return nil
	}
	e := model.Event{Reason: eventServiceIPs, Message: condition.Message}
	if !condition.True {
		e = model.Event{Warning: true, Reason: eventNoServiceIPs, Message: condition.Reason + ": " + condition.Message}
	}
	return c.cfg.Events.EventOn(ctx, store.Services(), got, short(e))
}

// ingressEdit sets the addresses in a Service's status; fields of those that stay are kept.
func ingressEdit(addrs []netip.Addr) store.Edit {
	return func(fields map[string]any) error {
		status, _ := fields["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
			fields["status"] = status
		}
		balancer, _ := status["loadBalancer"].(map[string]any)
		have, _ := balancer["ingress"].([]any)
		var next []any
		for _, a := range addrs {
			i := slices.IndexFunc(have, func(x any) bool {
				entry, _ := x.(map[string]any)
				text, _ := entry["ip"].(string)
				is, err := netip.ParseAddr(text)
				return err == nil && is == a
			})
			if i >= 0 {
				next = append(next, have[i])
				continue
			}
			next = append(next, map[string]any{"ip": a.String()})
		}
		if len(next) == 0 {
			if balancer != nil {
				delete(balancer, "ingress")
			}
			return nil
		}
		if balancer == nil {
			balancer = map[string]any{}
			status["loadBalancer"] = balancer
		}
		balancer["ingress"] = next
		return nil
	}
}

// withoutCondition removes a condition.
func withoutCondition(of string) store.Edit {
	return func(fields map[string]any) error {
		status, _ := fields["status"].(map[string]any)
		have, _ := status["conditions"].([]any)
		left := slices.DeleteFunc(have, func(x any) bool {
			entry, _ := x.(map[string]any)
			return entry["type"] == of
		})
		if len(left) < len(have) {
			status["conditions"] = left
		}
		return nil
	}
}
