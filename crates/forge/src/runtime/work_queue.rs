//! A bounded queue of work for several threads. The thread that became idle last gets the next piece.
//!
//! Each thread has its own database connection, with its own caches and prepared statements. If the threads took turns, each
//! connection would have to prepare every statement before any is warm; so as few as possible are used.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Creates a queue of limited length. It ends when the sender is dropped and everything that was sent is received.
pub(crate) fn work_queue<T>(max_length: usize) -> (WorkSender<T>, WorkReceiver<T>) {
    let state = State { queued: VecDeque::new(), idle: Vec::new(), max_length, is_closed: false, receivers: 1 };
    let queue = Arc::new(Queue(Mutex::new(state)));
    (WorkSender(Arc::clone(&queue)), WorkReceiver { queue, wake: Arc::default() })
}

/// The end of a queue that sends.
pub(crate) struct WorkSender<T>(Arc<Queue<T>>);

/// The end of a queue that receives. Each thread has its own clone, and waiting takes `&mut self`: if two threads
/// waited with the same `wake`, the first one to wake up would remove both from the idle ones.
pub(crate) struct WorkReceiver<T> {
    queue: Arc<Queue<T>>,
    wake: Arc<Condvar>,
}

/// Why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The queue has its maximum length.
    Full,
    /// No thread receives any more.
    Disconnected,
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveError {
    /// Nothing was sent in time.
    Timeout,
    /// The queue has ended.
    Closed,
}

struct Queue<T>(Mutex<State<T>>);

struct State<T> {
    queued: VecDeque<T>,
    /// The threads that wait, the one that became idle last at the end. Those that were woken in vain are at the start.
    idle: Vec<Arc<Condvar>>,
    max_length: usize,
    is_closed: bool,
    receivers: usize,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> WorkSender<T> {
    /// Sends a piece of work to the thread that became idle last, or to the first that becomes idle.
    pub(crate) fn try_send(&self, work: T) -> Result<(), SendError> {
        let mut state = self.0.lock();
        if state.receivers == 0 {
            return Err(SendError::Disconnected);
        }
        if state.queued.len() >= state.max_length {
            return Err(SendError::Full);
        }
        state.queued.push_back(work);
        let woken = state.idle.pop();
        drop(state);
        if let Some(woken) = woken {
            woken.notify_one();
        }
        Ok(())
    }

    /// Returns the number of pieces that no thread has received yet.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().queued.len()
    }
}

impl<T> Drop for WorkSender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        for idle in state.idle.drain(..) {
            idle.notify_one();
        }
    }
}

impl<T> WorkReceiver<T> {
    /// Waits for a piece of work; returns `None` at the end of the queue.
    pub(crate) fn recv(&mut self) -> Option<T> {
        self.recv_until(None).ok()
    }

    /// Waits for a piece of work for a limited time.
    pub(crate) fn recv_timeout(&mut self, timeout: Duration) -> Result<T, ReceiveError> {
        self.recv_until(Some(Instant::now() + timeout))
    }

    /// Returns a piece of work if one is queued.
    pub(crate) fn try_recv(&self) -> Option<T> {
        self.queue.lock().queued.pop_front()
    }

    fn recv_until(&mut self, deadline: Option<Instant>) -> Result<T, ReceiveError> {
        let mut state = self.queue.lock();
        let mut has_waited = false;
        loop {
            if let Some(work) = state.queued.pop_front() {
                return Ok(work);
            }
            if state.is_closed {
                return Err(ReceiveError::Closed);
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                return Err(ReceiveError::Timeout);
            }
            // A thread that waits again was woken in vain, because a busy one took the piece. It has not worked, so it
            // becomes the least preferred.
            let position = if has_waited { 0 } else { state.idle.len() };
            state.idle.insert(position, Arc::clone(&self.wake));
            state = match remaining {
                Some(remaining) => self.wake.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            // It is still there if nothing was sent to this thread.
            state.idle.retain(|idle| !Arc::ptr_eq(idle, &self.wake));
            has_waited = true;
        }
    }
}

impl<T> Clone for WorkReceiver<T> {
    fn clone(&self) -> Self {
        self.queue.lock().receivers += 1;
        Self { queue: Arc::clone(&self.queue), wake: Arc::default() }
    }
}

impl<T> Drop for WorkReceiver<T> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            // No thread will run it; dropping it fails the requests that wait.
            let dropped = std::mem::take(&mut state.queued);
            drop(state);
            drop(dropped);
        }
    }
}

impl<T> Iterator for WorkReceiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.recv()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{self, Receiver, Sender},
        thread,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// A piece of work that lasts until its end is dropped.
    struct Work {
        started: Sender<usize>,
        end: Receiver<()>,
    }

    /// Starts a thread that says its number for each piece of work.
    fn start_worker(number: usize, queue: WorkReceiver<Work>) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            for work in queue {
                work.started.send(number).expect("the test receives");
                let _ = work.end.recv();
            }
        })
    }

    fn wait_until_idle<T>(queue: &WorkSender<T>, threads: usize) {
        let start = Instant::now();
        while queue.0.lock().idle.len() != threads {
            assert!(start.elapsed() < LONG, "the number of idle threads is not {threads}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_thread_that_became_idle_last_gets_the_next_piece() {
        let (sender, receiver) = work_queue(10);
        let workers: Vec<_> = (0..3).map(|number| start_worker(number, receiver.clone())).collect();
        drop(receiver);
        wait_until_idle(&sender, 3);
        let begin = || {
            let (started, number) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            sender.try_send(Work { started, end: ended }).expect("sent");
            (number.recv_timeout(LONG).expect("started"), end)
        };
        let (first, end_of_first) = begin();
        drop(end_of_first);
        wait_until_idle(&sender, 3);
        for _ in 0..20 {
            let (number, end) = begin();
            assert_eq!(number, first);
            drop(end);
            wait_until_idle(&sender, 3);
        }
        let (busy, end_of_busy) = begin();
        let (other, end_of_other) = begin();
        assert_eq!(busy, first);
        assert_ne!(other, first);
        drop(end_of_busy);
        wait_until_idle(&sender, 2);
        drop(end_of_other);
        wait_until_idle(&sender, 3);
        assert_eq!(begin().0, other);
        drop(sender);
        for worker in workers {
            worker.join().expect("ended");
        }
    }

    #[test]
    fn a_thread_that_is_woken_in_vain_becomes_the_least_preferred() {
        let (sender, receiver) = work_queue(10);
        let workers: Vec<_> = (0..2).map(|number| start_worker(number, receiver.clone())).collect();
        drop(receiver);
        wait_until_idle(&sender, 2);
        // The thread is woken as by `try_send`, but finds nothing, as if a busy one had taken the piece.
        let woken = sender.0.lock().idle.pop().expect("two threads are idle");
        woken.notify_one();
        wait_until_idle(&sender, 2);
        let is_least_preferred = Arc::ptr_eq(&sender.0.lock().idle[0], &woken);
        assert!(is_least_preferred, "it would get the next piece");
        drop(sender);
        for worker in workers {
            worker.join().expect("ended");
        }
    }

    #[test]
    fn several_threads_receive_everything_that_was_sent_once() {
        let (sender, receiver) = work_queue(1000);
        let (done, received) = mpsc::channel();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (queue, done) = (receiver.clone(), done.clone());
                thread::spawn(move || queue.for_each(|number: u32| done.send(number).expect("the test receives")))
            })
            .collect();
        drop((receiver, done));
        for number in 0..10_000 {
            while sender.try_send(number) == Err(SendError::Full) {
                thread::yield_now();
            }
        }
        drop(sender);
        for worker in workers {
            worker.join().expect("ended");
        }
        let mut received: Vec<u32> = received.iter().collect();
        received.sort_unstable();
        assert_eq!(received, (0..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_thread_receives_in_the_order_of_sending() {
        let (sender, receiver) = work_queue(10);
        for number in 0..10 {
            sender.try_send(number).expect("sent");
        }
        assert_eq!(receiver.take(10).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_queue_and_one_without_threads_refuse() {
        let (sender, receiver) = work_queue(2);
        assert_eq!(
            (sender.try_send(1), sender.try_send(2), sender.try_send(3)),
            (Ok(()), Ok(()), Err(SendError::Full))
        );
        assert_eq!((sender.len(), receiver.try_recv(), sender.len()), (2, Some(1), 1));
        let dropped = Arc::new(());
        let (other, queue) = work_queue(2);
        other.try_send(Arc::clone(&dropped)).expect("sent");
        drop(queue);
        assert_eq!(Arc::strong_count(&dropped), 1, "what no thread will receive is dropped");
        assert_eq!(other.try_send(dropped), Err(SendError::Disconnected));
    }

    #[test]
    fn waiting_ends_after_the_timeout_and_with_the_sender() {
        let (sender, mut receiver) = work_queue(2);
        assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(ReceiveError::Timeout));
        sender.try_send(1).expect("sent");
        assert_eq!(receiver.recv_timeout(LONG), Ok(1));
        sender.try_send(2).expect("sent");
        drop(sender);
        assert_eq!(receiver.recv_timeout(LONG), Ok(2), "the rest is received");
        assert_eq!(receiver.recv_timeout(LONG), Err(ReceiveError::Closed));
        assert_eq!(receiver.recv(), None);
    }
}
