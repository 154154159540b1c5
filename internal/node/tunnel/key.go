// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/kernel/wireguard"
	"github.com/weft-net/weft/internal/model"
)

// keyMode is the mode of a key file, as with flannel.
const keyMode = 0o600

// Hints for a file without a key.
const (
	hintPrivate = "delete the file, and a new key is created; its public key is published to the peers"
	hintShared  = "write the same key on all nodes; wg genpsk creates one"
)

// mostKey limits how much of a key file is read, in bytes.
const mostKey = 1 << 10

// readKey reads a key file.
func readKey(file, hint string) (wireguard.Secret, error) {
	f, err := os.Open(file)
	if err != nil {
		return wireguard.Secret{}, fmt.Errorf("wireguard: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostKey))
	if err != nil {
		return wireguard.Secret{}, fmt.Errorf("wireguard: key file %s: %w", file, err)
	}
	key, err := wireguard.ParseKey(string(b))
	if err != nil {
		return wireguard.Secret{}, model.Errorf(model.CodeInvalidConf, hint, "wireguard: key file %s: %v", file, err)
	}
	return key, nil
}

// readOrGeneratePrivateKey reads a private key from its file, and creates it if it does not exist. Other readers never
// see a part of a key.
func readOrGeneratePrivateKey(file string, random io.Reader) (wireguard.Secret, error) {
	key, err := readKey(file, hintPrivate)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	var b [wireguard.KeyLen]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return key, fmt.Errorf("wireguard: make a key: %w", err)
	}
	b[0] &= 248 // as required by Curve25519
	b[31] = b[31]&127 | 64
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return key, fmt.Errorf("wireguard: make a key: %w", err)
	}
	err = atomicfile.Create(file, []byte(base64.StdEncoding.EncodeToString(b[:])), keyMode, atomicfile.Durable)
	if err != nil && !errors.Is(err, fs.ErrExist) { // another agent was faster and may have published its key already
		return key, fmt.Errorf("wireguard: make a key: %w", err)
	}
	return readKey(file, hintPrivate)
}

// publicKey returns the public key of a private one.
func publicKey(s wireguard.Secret) (wireguard.PublicKey, error) {
	k, err := ecdh.X25519().NewPrivateKey(s[:])
	if err != nil {
		return wireguard.PublicKey{}, err
	}
	return wireguard.PublicKey(k.PublicKey().Bytes()), nil
}
