// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/weft-net/weft/internal/kernel/wireguard"
)

// An initiation of a session is lost if the peer does not know this node yet, and two that cross are both rejected. WireGuard
// repeats one only after five seconds (RekeyTimeout), in which two nodes that are new do not reach each other. So sessions
// repeats the initiations of new peers sooner: retries times, after firstRetry, and then after twice the time before.
const (
	retries    = 4
	firstRetry = 250 * time.Millisecond
)

// sessions begins sessions with the new peers of a device in user space, whether there are packets for them or not: a peer
// that has a session with the device before this one sends packets that cannot be decrypted, and notices only after 15 s
// without an answer.
type sessions struct {
	dev   *device.Device
	after func(time.Duration) <-chan time.Time
	ctx   context.Context
	end   context.CancelFunc
	parts sync.WaitGroup
}

func newSessions(dev *device.Device, after func(time.Duration) <-chan time.Time) *sessions {
	s := &sessions{dev: dev, after: after}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// close ends the retries.
func (s *sessions) close() {
	s.end()
	s.parts.Wait()
}

// begin initiates a session with each of some peers of the device with the public key own.
func (s *sessions) begin(own wireguard.PublicKey, peers []wireguard.PublicKey) {
	if len(peers) == 0 {
		return
	}
	for _, key := range peers {
		if peer := s.dev.LookupPeer(device.NoisePublicKey(key)); peer != nil {
			peer.SendKeepalive() // it needs a session
		}
	}
	s.parts.Go(func() { s.retry(own, peers) })
}

// retry initiates sessions again with those of the peers that have none. The two nodes of a pair take turns, so that their
// initiations do not cross again.
func (s *sessions) retry(own wireguard.PublicKey, peers []wireguard.PublicKey) {
	wait := firstRetry
	for n := range retries {
		select {
		case <-s.after(wait):
		case <-s.ctx.Done():
			return
		}
		text, err := s.dev.IpcGet()
		if err != nil {
			return // the device is closed
		}
		peers = without(peers, text)
		for _, key := range peers {
			if (bytes.Compare(own[:], key[:]) < 0) != (n%2 == 0) {
				continue
			}
			if peer := s.dev.LookupPeer(device.NoisePublicKey(key)); peer != nil {
				peer.ExpireCurrentKeypairs() // otherwise nothing is sent within RekeyTimeout of the one before
				peer.SendKeepalive()
			}
		}
		wait *= 2
	}
}

// without returns those of the keys with whose peers a device has no session yet. text is the device in WireGuard's text
// protocol.
func without(keys []wireguard.PublicKey, text string) (out []wireguard.PublicKey) {
	established := map[string]bool{}
	key := ""
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch name {
		case "public_key":
			key = value
		case "last_handshake_time_sec":
			established[key] = value != "0"
		}
	}
	for _, k := range keys {
		if !established[hex.EncodeToString(k[:])] {
			out = append(out, k)
		}
	}
	return out
}
