//! A ticket collects many answers from other threads, and wakes the waiting task once.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The side that gives the answers.
pub(crate) struct Ticket<T>(Mutex<State<T>>);

struct State<T> {
    answers: Vec<Option<T>>,
    missing: usize,
    held: Option<Held>,
    waker: Option<Waker>,
}

/// A value that is dropped as soon as all answers are given, before the waiting task reads them.
pub(crate) type Held = Box<dyn Send>;

/// A future of all answers. Dropping it loses only the answers.
pub(crate) struct Answers<T>(Arc<Ticket<T>>);

impl<T> Ticket<T> {
    /// Creates a ticket for `count` answers.
    pub(crate) fn for_answers(count: usize, held: Held) -> (Arc<Self>, Answers<T>) {
        let answers = std::iter::repeat_with(|| None).take(count).collect();
        let state = State { answers, missing: count, held: Some(held), waker: None };
        let ticket = Arc::new(Self(Mutex::new(state)));
        (Arc::clone(&ticket), Answers(ticket))
    }

    /// Gives the answer for a place. Only the first answer for a place counts.
    pub(crate) fn answer(&self, place: usize, answer: T) {
        let mut state = self.lock();
        if let Some(open @ None) = state.answers.get_mut(place) {
            *open = Some(answer);
            state.missing -= 1;
        }
        if state.missing > 0 {
            return;
        }
        let (held, waker) = (state.held.take(), state.waker.take());
        drop(state);
        drop(held);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Future for Answers<T> {
    type Output = Vec<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<T>> {
        let mut state = self.0.lock();
        if state.missing == 0 {
            return Poll::Ready(std::mem::take(&mut state.answers).into_iter().flatten().collect());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn answers_keep_the_order_of_their_places() {
        for _ in 0..200 {
            let (ticket, answers) = Ticket::for_answers(8, Box::new(()));
            let givers: Vec<_> = (0..8)
                .map(|place| {
                    let ticket = Arc::clone(&ticket);
                    std::thread::spawn(move || ticket.answer(place, place * 10))
                })
                .collect();
            assert_eq!(answers.await, [0, 10, 20, 30, 40, 50, 60, 70]);
            givers.into_iter().for_each(|giver| giver.join().unwrap());
        }
    }

    #[tokio::test]
    async fn ticket_without_answers_is_ready() {
        assert!(Ticket::<u8>::for_answers(0, Box::new(())).1.await.is_empty());
    }

    #[tokio::test]
    async fn second_answer_for_a_place_is_ignored() {
        let held = Arc::new(());
        let (ticket, answers) = Ticket::for_answers(2, Box::new(Arc::clone(&held)));
        ticket.answer(0, 'a');
        ticket.answer(0, 'b');
        assert_eq!(Arc::strong_count(&held), 2);
        ticket.answer(1, 'c');
        assert_eq!(Arc::strong_count(&held), 1, "dropped with the last answer");
        assert_eq!(answers.await, ['a', 'c']);
    }
}
